import java.lang.annotation.Annotation;
import java.lang.reflect.Constructor;
import java.lang.reflect.Executable;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.common.test.ClusterInstance;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;

/**
 * Lists the tests of the classes that are named, then runs those it is told to, each against a cluster that is there.
 * Ends after a test that leaves threads behind: they could disturb the next one.
 */
public final class SuiteRunner {
    private static final long LEAVE_MS = 3_000;

    private final Conversation conversation = new Conversation();
    private final long limitMs;

    private SuiteRunner(long limitMs) {
        this.limitMs = limitMs;
    }

    /** Arguments: the time limit of a test in ms, then names of classes. */
    public static void main(String[] args) throws Exception {
        new SuiteRunner(Long.parseLong(args[0])).serve(Arrays.asList(args).subList(1, args.length));
        Runtime.getRuntime().halt(0);
    }

    private void serve(List<String> classes) throws Exception {
        Map<String, SuiteTest> tests = new LinkedHashMap<>();
        for (String name : classes) {
            for (SuiteTest test : SuiteTest.in(Class.forName(name))) tests.put(test.name(), test);
        }
        for (SuiteTest test : tests.values()) conversation.say(test.described());
        conversation.say("LISTED");
        for (List<String> line = conversation.hear(); line != null; line = conversation.hear()) {
            Map<Integer, String> addresses = new TreeMap<>();
            for (String broker : line.subList(2, line.size())) {
                int at = broker.indexOf('=');
                addresses.put(Integer.valueOf(broker.substring(0, at)), broker.substring(at + 1));
            }
            SuiteTest test = tests.get(line.get(1));
            if (!leavesNothing(() -> run(test, addresses))) return;
            conversation.say("READY");
        }
    }

    private boolean leavesNothing(Runnable work) throws InterruptedException {
        Set<Thread> before = new HashSet<>(Thread.getAllStackTraces().keySet());
        work.run();
        for (long waited = 0; ; waited += 20) {
            if (Thread.getAllStackTraces().keySet().stream().noneMatch(one -> isLeft(one, before))) return true;
            if (waited >= LEAVE_MS) return false;
            Thread.sleep(20);
        }
    }

    private static boolean isLeft(Thread thread, Set<Thread> before) {
        return !before.contains(thread) && !thread.getName().startsWith("ForkJoinPool");
    }

    private void run(SuiteTest test, Map<Integer, String> addresses) {
        SuiteCluster cluster = new SuiteCluster(test.config(), addresses, conversation);
        List<String> without = new CopyOnWriteArrayList<>();
        FutureTask<Void> task = new FutureTask<>(() -> {
            if (!test.config().features().isEmpty()) without.addAll(cluster.adoptFeatures());
            return run(test, cluster);
        });
        Thread thread = new Thread(task, test.name());
        thread.setDaemon(true);
        thread.start();
        try {
            task.get(limitMs, TimeUnit.MILLISECONDS);
            conversation.say("RESULT", "passed", "");
        } catch (TimeoutException late) {
            fail("took longer than " + limitMs / 1000 + " s" + where(thread, test), without);
        } catch (ExecutionException failed) {
            report(failed.getCause(), test, without);
        } catch (InterruptedException never) {
            throw new IllegalStateException(never);
        } finally {
            cluster.end();
            thread.interrupt();
        }
    }

    private void report(Throwable failure, SuiteTest test, List<String> without) {
        Throwable cause = failure;
        while (cause instanceof InvocationTargetException) cause = cause.getCause();
        for (Throwable one = cause; one != null; one = one.getCause()) {
            if (String.valueOf(one.getMessage()).startsWith("needs a JVM broker")) {
                conversation.say("RESULT", "skipped", one.getMessage());
                return;
            }
        }
        cause.printStackTrace();
        fail(cause + at(cause.getStackTrace(), test), without);
    }

    /** {@code without}: levels of features that the cluster does not have. */
    private void fail(String reason, List<String> without) {
        conversation.say("RESULT", "failed", reason + (without.isEmpty() ? "" : " (without " + String.join(", ", without) + ")"));
    }

    /** Returns the line of the test class at which a thread is. */
    private static String where(Thread thread, SuiteTest test) {
        StackTraceElement[] frames = thread.getStackTrace();
        Arrays.stream(frames).forEach(frame -> System.err.println("\tat " + frame));
        return (frames.length > 0 ? " in " + frames[0] : "") + at(frames, test);
    }

    private static String at(StackTraceElement[] frames, SuiteTest test) {
        return Arrays.stream(frames)
            .filter(frame -> frame.getClassName().startsWith(test.type().getName()))
            .map(frame -> " at line " + frame.getLineNumber())
            .findFirst().orElse("");
    }

    private static Void run(SuiteTest test, ClusterInstance cluster) throws ReflectiveOperationException {
        Constructor<?> constructor = test.type().getDeclaredConstructors()[0];
        constructor.setAccessible(true);
        Object made = constructor.newInstance(arguments(constructor, cluster));
        try {
            annotated(made, BeforeEach.class, cluster);
            call(made, test.method(), cluster);
        } finally {
            annotated(made, AfterEach.class, cluster);
        }
        return null;
    }

    private static void annotated(Object test, Class<? extends Annotation> kind, ClusterInstance cluster)
            throws ReflectiveOperationException {
        for (Method method : test.getClass().getDeclaredMethods()) {
            if (method.isAnnotationPresent(kind)) call(test, method, cluster);
        }
    }

    private static void call(Object test, Method method, ClusterInstance cluster) throws ReflectiveOperationException {
        method.setAccessible(true);
        method.invoke(test, arguments(method, cluster));
    }

    private static Object[] arguments(Executable called, ClusterInstance cluster) {
        return Arrays.stream(called.getParameterTypes()).map(type -> type == ClusterInstance.class ? cluster : null).toArray();
    }
}
