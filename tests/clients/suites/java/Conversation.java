import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.util.List;

/**
 * Speaks with the program that starts and stops the cluster: a line out on stdout, its answer in on stdin.
 * The fields of a line are separated by tabs.
 */
final class Conversation {
    private final PrintStream out = System.out;
    private final BufferedReader in = new BufferedReader(new InputStreamReader(System.in));

    /** Everything else that is printed goes to stderr from here on. */
    Conversation() {
        System.setOut(System.err);
    }

    void say(Object... fields) {
        StringBuilder line = new StringBuilder();
        for (Object field : fields) {
            line.append(line.isEmpty() ? "" : "\t").append(String.valueOf(field).replaceAll("\\s+", " ").strip());
        }
        out.println(line);
        out.flush();
    }

    /** Returns the fields of the next line, or null when there are no more. */
    List<String> hear() throws IOException {
        String line = in.readLine();
        return line == null ? null : List.of(line.split("\t", -1));
    }

    /** Asks for something to be done to the cluster, and waits until it is done. */
    synchronized void ask(Object... fields) {
        try {
            say(fields);
            List<String> answer = hear();
            if (answer == null || !answer.get(0).equals("DONE")) {
                throw new IllegalStateException(String.join(" ", answer == null ? List.of("no answer") : answer));
            }
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }
}
