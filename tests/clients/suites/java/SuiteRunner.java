import java.io.*;
import java.lang.annotation.Annotation;
import java.lang.reflect.*;
import java.util.*;
import java.util.concurrent.*;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.*;
import org.junit.jupiter.api.*;

/** Runs test methods of the classes that are named; asks on stdout for a cluster per test, and is answered on stdin. */
public final class SuiteRunner {
    private static final long LIMIT_S = 90;
    private static final PrintStream OUT = System.out;
    private static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in));

    public static void main(String[] args) throws Exception {
        System.setOut(System.err);
        for (int i = 1; i < args.length; i++) {
            Class<?> type = Class.forName(args[i]);
            Method[] methods = type.getDeclaredMethods();
            Arrays.sort(methods, Comparator.comparing(Method::getName));
            for (Method method : methods) {
                String name = type.getSimpleName() + "." + method.getName();
                if (!name.contains(args[0])) continue;
                ClusterTests several = method.getAnnotation(ClusterTests.class);
                ClusterTest one = method.getAnnotation(ClusterTest.class);
                if (several != null) {
                    for (int n = 0; n < several.value().length; n++) test(name + "[" + n + "]", type, method, several.value()[n]);
                } else if (one != null) {
                    test(name, type, method, one);
                } else if (method.isAnnotationPresent(ClusterTemplate.class)) {
                    tell("failed", name, "not wired: @ClusterTemplate");
                }
            }
        }
        System.exit(0);
    }

    private static void test(String name, Class<?> type, Method method, ClusterTest asked) throws Exception {
        if (name.contains("Share")) {
            tell("skipped", name, "share groups are not served");
            return;
        }
        ClusterTestDefaults defaults = type.getAnnotation(ClusterTestDefaults.class);
        int brokers = asked.brokers() > 0 ? asked.brokers() : defaults != null ? defaults.brokers() : 1;
        Map<String, String> properties = new TreeMap<>();
        if (defaults != null) for (var p : defaults.serverProperties()) properties.put(p.key(), p.value());
        for (var p : asked.serverProperties()) properties.put(p.key(), p.value());
        StringJoiner question = new StringJoiner("\t").add("CLUSTER").add("" + brokers);
        properties.forEach((key, value) -> question.add(key + "=" + value));
        OUT.println(question);
        OUT.flush();
        String[] answer = IN.readLine().split("\t", 2);
        if (!answer[0].equals("READY")) {
            tell("failed", name, "no such cluster: " + answer[1]);
            return;
        }
        ExecutorService thread = Executors.newSingleThreadExecutor(work -> {
            Thread made = new Thread(work);
            made.setDaemon(true);
            return made;
        });
        try {
            thread.submit(() -> run(type, method, new SuiteCluster(answer[1]))).get(LIMIT_S, TimeUnit.SECONDS);
            tell("passed", name, "");
        } catch (TimeoutException late) {
            tell("failed", name, "took longer than " + LIMIT_S + " s");
        } catch (ExecutionException wrapped) {
            Throwable cause = wrapped.getCause();
            while (cause instanceof InvocationTargetException) cause = cause.getCause();
            boolean jvm = String.valueOf(cause.getMessage()).contains("needs a JVM broker");
            tell(jvm ? "skipped" : "failed", name, String.valueOf(cause));
        } finally {
            thread.shutdownNow();
        }
    }

    private static Void run(Class<?> type, Method method, ClusterInstance cluster) throws Exception {
        Constructor<?> constructor = type.getDeclaredConstructors()[0];
        constructor.setAccessible(true);
        Object test = constructor.newInstance(arguments(constructor, cluster));
        try {
            annotated(test, BeforeEach.class, cluster);
            call(test, method, cluster);
        } finally {
            annotated(test, AfterEach.class, cluster);
        }
        return null;
    }

    private static void annotated(Object test, Class<? extends Annotation> kind, ClusterInstance cluster) throws Exception {
        for (Method method : test.getClass().getDeclaredMethods()) if (method.isAnnotationPresent(kind)) call(test, method, cluster);
    }

    private static void call(Object test, Method method, ClusterInstance cluster) throws Exception {
        method.setAccessible(true);
        method.invoke(test, arguments(method, cluster));
    }

    private static Object[] arguments(Executable called, ClusterInstance cluster) {
        return Arrays.stream(called.getParameterTypes()).map(t -> t == ClusterInstance.class ? cluster : null).toArray();
    }

    private static void tell(String result, String name, String reason) {
        String line = reason.lines().findFirst().orElse("");
        OUT.println("RESULT\t" + result + "\t" + name + "\t" + line.replace('\t', ' '));
        OUT.flush();
    }
}
