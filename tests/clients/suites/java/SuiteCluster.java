import java.util.*;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.apache.kafka.test.TestUtils;

/** A running Quorate cluster as Kafka's tests see theirs; what needs objects of a JVM broker is refused by that name. */
final class SuiteCluster implements ClusterInstance {
    private final String bootstrap;

    SuiteCluster(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    private static UnsupportedOperationException jvm(String what) {
        return new UnsupportedOperationException("needs a JVM broker: " + what);
    }

    @Override public String bootstrapServers() { return bootstrap; }
    @Override public Type type() { return Type.KRAFT; }
    @Override public ListenerName clientListener() { return new ListenerName("PLAINTEXT"); }
    @Override public Set<GroupProtocol> supportedGroupProtocols() { return Set.of(GroupProtocol.CLASSIC); }
    @Override public Optional<FaultHandlerException> firstFatalException() { return Optional.empty(); }
    @Override public Optional<FaultHandlerException> firstNonFatalException() { return Optional.empty(); }
    @Override public void start() { }
    @Override public boolean started() { return true; }
    @Override public boolean stopped() { return false; }
    @Override public Map<Integer, kafka.server.KafkaBroker> brokers() { throw jvm("brokers()"); }
    @Override public Map<Integer, kafka.server.ControllerServer> controllers() { throw jvm("controllers()"); }
    @Override public ClusterConfig config() { throw new IllegalStateException("not wired: config()"); }
    @Override public Map<String, Object> setClientSaslConfig(Map<String, Object> given) { return new HashMap<>(given); }
    @Override public Set<Integer> controllerIds() { throw jvm("controllerIds()"); }
    @Override public ListenerName controllerListenerName() { throw jvm("controllerListenerName()"); }
    @Override public String bootstrapControllers() { throw jvm("bootstrapControllers()"); }
    @Override public void stop() { throw new IllegalStateException("not wired: stop()"); }
    @Override public void shutdownBroker(int id) { throw new IllegalStateException("not wired: shutdownBroker()"); }
    @Override public void startBroker(int id) { throw new IllegalStateException("not wired: startBroker()"); }

    @Override public Set<Integer> brokerIds() {
        try (Admin admin = admin()) {
            Set<Integer> ids = new TreeSet<>();
            admin.describeCluster().nodes().get(30, TimeUnit.SECONDS).forEach(node -> ids.add(node.id()));
            return ids;
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    @Override public List<Integer> brokerBoundPorts() {
        return Arrays.stream(bootstrap.split(",")).map(a -> Integer.valueOf(a.substring(a.lastIndexOf(':') + 1))).toList();
    }

    @Override public String clusterId() {
        try (Admin admin = admin()) {
            return admin.describeCluster().clusterId().get(30, TimeUnit.SECONDS);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    @Override public void waitForReadyBrokers() { }
    @Override public void ensureConsistentMetadata() { }

    @Override public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(() -> {
                try {
                    var told = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions();
                    return told.size() == partitions && told.stream().allMatch(p -> p.leader() != null);
                } catch (java.util.concurrent.ExecutionException notYet) {
                    return false;
                }
            }, 30_000, topic + " is not there");
        }
    }

    @Override public void waitTopicDeletion(String topic) throws InterruptedException {
        try (Admin admin = admin()) {
            TestUtils.waitForCondition(() -> !admin.listTopics().names().get().contains(topic), 30_000, topic + " is still there");
        }
    }
}
