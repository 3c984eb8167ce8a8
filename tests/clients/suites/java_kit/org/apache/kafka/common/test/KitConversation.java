package org.apache.kafka.common.test;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.List;

/**
 * Speaks with the program that starts and stops clusters: a line out on stdout, its answer in on stdin.
 * The fields of a line are separated by tabs. Everything else that is printed goes to stderr.
 */
public final class KitConversation {
    private static final PrintStream OUT = System.out;
    private static final BufferedReader IN = new BufferedReader(new InputStreamReader(System.in));

    static {
        System.setOut(System.err);
    }

    private KitConversation() { }

    public static void say(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object field : fields) {
            line.append(line.isEmpty() ? "" : "\t").append(String.valueOf(field).replaceAll("\\s+", " ").strip());
        }
        OUT.println(line);
        OUT.flush();
    }

    /** Returns the fields of the next line, or null when there are no more. */
    public static List<String> hear() throws IOException {
        String line = IN.readLine();
        return line == null ? null : List.of(line.split("\t", -1));
    }

    /** Asks for something to be done to the cluster, waits until it is done, and returns the answer. */
    public static synchronized List<String> ask(Object... fields) throws IOException {
        say(fields);
        List<String> answer = hear();
        if (answer == null || !answer.get(0).equals("DONE")) {
            throw new IllegalStateException(String.join(" ", answer == null ? List.of("no answer") : answer));
        }
        return answer;
    }
}
