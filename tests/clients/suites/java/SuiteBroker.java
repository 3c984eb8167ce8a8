import java.io.IOException;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import kafka.server.KafkaBroker;
import kafka.server.KafkaConfig;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.requests.AbstractRequest;
import org.apache.kafka.common.requests.AbstractResponse;
import org.apache.kafka.common.requests.MetadataRequest;
import org.apache.kafka.common.requests.MetadataResponse;
import org.apache.kafka.coordinator.group.GroupCoordinator;
import org.apache.kafka.metadata.BrokerState;
import org.apache.kafka.metadata.MetadataCache;
import org.apache.kafka.server.IntegrationTestUtils;
import org.apache.kafka.test.NoRetryException;

/**
 * A broker of ours where a test holds an object of Kafka's. It answers what can be done or asked from outside,
 * and refuses the rest by name, since only a broker in the same JVM has it.
 */
final class SuiteBroker implements InvocationHandler {
    private final int id;
    private final int port;
    private final SuiteCluster cluster;
    private SuiteReplicas replicas;
    private boolean shutdown = false;
    final KafkaBroker broker = proxy(KafkaBroker.class, this);

    SuiteBroker(int id, String address, SuiteCluster cluster) {
        this.id = id;
        this.port = Integer.parseInt(address.substring(address.lastIndexOf(':') + 1));
        this.cluster = cluster;
    }

    static NoRetryException jvm(String what) {
        return new NoRetryException(new UnsupportedOperationException("needs a JVM broker: " + what));
    }

    int id() {
        return id;
    }

    int port() {
        return port;
    }

    synchronized boolean isShutdown() {
        return shutdown;
    }

    synchronized void shutdown() {
        if (!shutdown) {
            cluster.ask("STOP", id);
            shutdown = true;
        }
    }

    synchronized void startup() {
        cluster.ask("START", id);
        shutdown = false;
    }

    /** Returns what the broker itself knows of a topic, or of all. */
    MetadataResponse metadata(List<String> topics) {
        try {
            return ask(new MetadataRequest.Builder(topics, false).build());
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    /** Returns what this broker, and no other, answers. */
    <T extends AbstractResponse> T ask(AbstractRequest request) throws IOException {
        return IntegrationTestUtils.connectAndReceive(request, port);
    }

    @Override
    public Object invoke(Object proxy, Method method, Object[] given) {
        switch (method.getName()) {
            case "startup": startup(); return null;
            case "shutdown": shutdown(); return null;
            case "awaitShutdown": return null;
            case "isShutdown": return isShutdown();
            case "brokerState": return isShutdown() ? BrokerState.SHUTTING_DOWN : BrokerState.RUNNING;
            case "clusterId": return cluster.clusterId();
            case "boundPort": return port;
            case "config": return config();
            case "metadataCache": return proxy(MetadataCache.class, (self, called, args) -> cached(called, args));
            case "replicaManager": return replicas().replicaManager();
            case "logManager": return replicas().logManager();
            case "groupCoordinator": return proxy(GroupCoordinator.class, (self, called, args) -> coordinator(called));
            case "toString": return "broker " + id;
            case "hashCode": return id;
            case "equals": return proxy == given[0];
            default: throw jvm("KafkaBroker." + method.getName());
        }
    }

    /** They are made when a test asks for them, since the classes take long to load. */
    private synchronized SuiteReplicas replicas() {
        if (replicas == null) replicas = new SuiteReplicas(this);
        return replicas;
    }

    private Object cached(Method called, Object[] given) {
        switch (called.getName()) {
            case "numPartitions": return partitions((String) given[0]);
            case "contains":
                return given[0] instanceof TopicPartition one
                    ? partitions(one.topic()).filter(count -> one.partition() < count).isPresent()
                    : partitions((String) given[0]).isPresent();
            case "getAliveBrokerNodes": return List.<Node>copyOf(metadata(List.of()).brokers());
            default: throw jvm("MetadataCache." + called.getName());
        }
    }

    private Object coordinator(Method called) {
        if (!called.getName().equals("groupMetadataTopicConfigs")) throw jvm("GroupCoordinator." + called.getName());
        Properties properties = new Properties();
        properties.put("cleanup.policy", "compact");
        return properties;
    }

    private Optional<Integer> partitions(String topic) {
        return metadata(List.of(topic)).topicMetadata().stream()
            .filter(told -> told.error().code() == 0)
            .map(told -> told.partitionMetadata().size())
            .findFirst();
    }

    private KafkaConfig config() {
        Properties properties = new Properties();
        properties.putAll(cluster.config().serverProperties());
        properties.putAll(cluster.config().perServerOverrideProperties().getOrDefault(id, Map.of()));
        properties.putAll(Map.of(
            "process.roles", "broker", "node.id", "" + id, "controller.listener.names", "CONTROLLER",
            "controller.quorum.voters", "3000@localhost:1", "listeners", "PLAINTEXT://localhost:" + port));
        properties.remove("authorizer.class.name");
        return new KafkaConfig(properties, false);
    }

    private static <T> T proxy(Class<T> type, InvocationHandler handler) {
        return type.cast(Proxy.newProxyInstance(SuiteBroker.class.getClassLoader(), new Class<?>[] {type}, handler));
    }
}
