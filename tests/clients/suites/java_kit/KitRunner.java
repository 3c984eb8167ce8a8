import static org.junit.platform.engine.discovery.DiscoverySelectors.selectClass;

import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.test.KitConversation;
import org.junit.platform.engine.TestExecutionResult;
import org.junit.platform.engine.TestSource;
import org.junit.platform.engine.support.descriptor.MethodSource;
import org.junit.platform.launcher.LauncherDiscoveryRequest;
import org.junit.platform.launcher.TestExecutionListener;
import org.junit.platform.launcher.TestIdentifier;
import org.junit.platform.launcher.core.LauncherDiscoveryRequestBuilder;
import org.junit.platform.launcher.core.LauncherFactory;

/** Runs the tests of the class that is named, by JUnit, and says what became of each. */
public final class KitRunner implements TestExecutionListener {
    private final Map<String, Long> begun = new HashMap<>();

    /** Arguments: the name of the class, and the time limit of each of its tests in seconds. */
    public static void main(String[] args) {
        KitConversation.say("BEGIN", args[0]);
        LauncherDiscoveryRequest request = LauncherDiscoveryRequestBuilder.request()
            .selectors(selectClass(args[0]))
            .configurationParameter("junit.jupiter.execution.timeout.testable.method.default", args[1] + " s")
            .configurationParameter("junit.jupiter.execution.timeout.thread.mode.default", "SEPARATE_THREAD")
            .build();
        LauncherFactory.create().execute(request, new KitRunner());
        KitConversation.say("READY");
        Runtime.getRuntime().halt(0);
    }

    @Override
    public void executionStarted(TestIdentifier test) {
        begun.put(test.getUniqueId(), System.nanoTime());
    }

    @Override
    public void executionSkipped(TestIdentifier test, String reason) {
        if (test.isTest()) say(test, "skipped", reason);
    }

    /** A class whose preparations fail is said as one test, since its own never begin. */
    @Override
    public void executionFinished(TestIdentifier test, TestExecutionResult result) {
        if (result.getStatus() == TestExecutionResult.Status.SUCCESSFUL) {
            if (test.isTest()) say(test, "passed", "");
        } else {
            Throwable cause = result.getThrowable().orElse(null);
            if (cause != null) cause.printStackTrace();
            say(test, needsJvm(cause) ? "skipped" : "failed", cause);
        }
    }

    private static boolean needsJvm(Throwable failure) {
        for (Throwable one = failure; one != null; one = one.getCause()) {
            if (String.valueOf(one.getMessage()).startsWith("needs a JVM broker")) return true;
        }
        return false;
    }

    private void say(TestIdentifier test, String result, Object reason) {
        long since = begun.getOrDefault(test.getUniqueId(), System.nanoTime());
        KitConversation.say("CASE", name(test), result, (System.nanoTime() - since) / 1e9, reason);
    }

    /** Returns Class.method, with the number of the run in brackets where a method is run with several arguments. */
    private static String name(TestIdentifier test) {
        TestSource source = test.getSource().orElse(null);
        if (!(source instanceof MethodSource method)) return test.getLegacyReportingName();
        String type = method.getClassName().replaceAll(".*\\.", "");
        List<String> runs = test.getUniqueIdObject().getSegments().stream()
            .filter(one -> one.getType().endsWith("invocation"))
            .map(one -> one.getValue().replaceAll("\\D", ""))
            .toList();
        return type + "." + method.getMethodName() + (runs.isEmpty() ? "" : "[" + String.join(".", runs) + "]");
    }
}
