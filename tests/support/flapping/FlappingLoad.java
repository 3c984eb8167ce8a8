import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.errors.TimeoutException;

/**
 * A producer of kafka-clients that runs until its standard input ends. It prints what it is told of its records, one
 * line each: a word (acknowledged, aborted, uncertain), a transaction's number or 0, and topic, partition and number;
 * or the word failure and a text.
 */
public class FlappingLoad {
    static final int RECORDS_PER_TRANSACTION = 20;
    static final int ABORTED_EVERY = 5;

    record Sent(String topic, int partition, int number) {}

    final String name;
    final String bootstrap;
    final String[] topics;
    final long pauseNanos;
    final boolean transactional;
    final int partitions;
    final Map<String, Integer> given = new HashMap<>();
    int turn;
    int transactions;
    volatile boolean stopped;
    final java.util.concurrent.Semaphore unanswered;

    FlappingLoad(String[] args) {
        name = args[0];
        bootstrap = args[1];
        topics = args[2].split(",");
        pauseNanos = Long.parseLong(args[3]);
        transactional = Boolean.parseBoolean(args[4]);
        partitions = Integer.parseInt(args[5]);
        unanswered = new java.util.concurrent.Semaphore(Integer.parseInt(args[6]));
    }

    public static void main(String[] args) throws Exception {
        FlappingLoad load = new FlappingLoad(args);
        Thread worker = new Thread(load::run);
        worker.start();
        while (System.in.read() >= 0) { }
        load.stopped = true;
        worker.join();
        System.out.flush();
        System.exit(0);
    }

    Sent next() {
        int lane = turn++ % (topics.length * partitions);
        String topic = topics[lane % topics.length];
        int partition = lane / topics.length;
        int number = given.merge(topic + "-" + partition, 1, Integer::sum);
        return new Sent(topic, partition, number);
    }

    static synchronized void say(String word, long transaction, Sent sent) {
        System.out.println(word + " " + transaction + " " + sent.topic + " " + sent.partition + " " + sent.number);
    }

    static synchronized void fail(String text) {
        System.out.println("failure " + text.replace('\n', ' '));
    }

    void pause() {
        java.util.concurrent.locks.LockSupport.parkNanos(pauseNanos);
    }

    ProducerRecord<byte[], byte[]> record(Sent sent) {
        byte[] value = Integer.toString(sent.number).getBytes();
        return new ProducerRecord<>(sent.topic, sent.partition, name.getBytes(), value);
    }

    void run() {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("client.id", name);
        settings.put("acks", "all");
        settings.put("enable.idempotence", "true");
        settings.put("delivery.timeout.ms", "300000");
        settings.put("linger.ms", "0");
        settings.put("retry.backoff.ms", "2");
        settings.put("retry.backoff.max.ms", "10");
        settings.put("key.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.ByteArraySerializer");
        if (transactional) {
            settings.put("transactional.id", name);
            settings.put("transaction.timeout.ms", "20000");
        }
        while (!stopped) {
            try (KafkaProducer<byte[], byte[]> producer = new KafkaProducer<>(settings)) {
                if (transactional) {
                    producer.initTransactions();
                    while (!stopped) {
                        writeTransaction(producer);
                    }
                } else {
                    write(producer);
                }
            } catch (KafkaException error) {
                fail(name + " begins anew: " + error);
            }
        }
    }

    void write(KafkaProducer<byte[], byte[]> producer) {
        while (!stopped) {
            Sent sent = next();
            unanswered.acquireUninterruptibly();
            producer.send(record(sent), (metadata, error) -> {
                unanswered.release();
                if (error == null) {
                    say("acknowledged", 0, sent);
                } else {
                    fail(name + ": " + sent + ": " + error);
                }
            });
            pause();
        }
        producer.flush();
    }

    void writeTransaction(KafkaProducer<byte[], byte[]> producer) {
        transactions++;
        boolean commit = transactions % ABORTED_EVERY != 0;
        boolean committing = false;
        List<Sent> wanted = new ArrayList<>();
        for (int i = 0; i < RECORDS_PER_TRANSACTION; i++) {
            wanted.add(next());
        }
        try {
            producer.beginTransaction();
            for (Sent sent : wanted) {
                producer.send(record(sent));
                pause();
            }
            if (commit) {
                committing = true;
                untilDone(producer::commitTransaction);
            } else {
                untilDone(producer::abortTransaction);
            }
        } catch (KafkaException error) {
            boolean aborted = tryToAbort(producer, error);
            say(wanted, aborted || !committing ? "aborted" : "uncertain");
            if (!aborted) {
                throw error;
            }
            return;
        }
        say(wanted, commit ? "acknowledged" : "aborted");
    }

    boolean tryToAbort(KafkaProducer<byte[], byte[]> producer, KafkaException error) {
        try {
            untilDone(producer::abortTransaction);
            return true;
        } catch (KafkaException fatal) {
            return false;
        }
    }

    void untilDone(Runnable end) {
        while (true) {
            try {
                end.run();
                return;
            } catch (TimeoutException again) {
                continue;
            }
        }
    }

    void say(List<Sent> wanted, String word) {
        for (Sent sent : wanted) {
            say(word, transactions, sent);
        }
    }
}
