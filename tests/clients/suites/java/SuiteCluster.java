import java.util.ArrayList;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.TreeMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import kafka.server.ControllerServer;
import kafka.server.KafkaBroker;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.FeatureUpdate;
import org.apache.kafka.clients.admin.FeatureUpdate.UpgradeType;
import org.apache.kafka.clients.admin.FinalizedVersionRange;
import org.apache.kafka.clients.admin.UpdateFeaturesOptions;
import org.apache.kafka.clients.consumer.GroupProtocol;
import org.apache.kafka.common.acl.AccessControlEntry;
import org.apache.kafka.common.acl.AclBinding;
import org.apache.kafka.common.acl.AclBindingFilter;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.ClusterInstance;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.Type;
import org.apache.kafka.server.authorizer.Authorizer;
import org.apache.kafka.server.common.Feature;
import org.apache.kafka.server.fault.FaultHandlerException;
import org.apache.kafka.test.TestUtils;

/** A running Quorate cluster as Kafka's tests see theirs; what needs objects of a JVM broker is refused by that name. */
final class SuiteCluster implements ClusterInstance {
    private static final long WAIT_MS = 60_000;

    private final ClusterConfig config;
    private final Conversation conversation;
    private final Map<Integer, SuiteBroker> brokers = new TreeMap<>();
    private final String bootstrap;
    private volatile boolean ended = false;

    /** {@code addresses}: broker id → host:port. */
    SuiteCluster(ClusterConfig config, Map<Integer, String> addresses, Conversation conversation) {
        this.config = config;
        this.conversation = conversation;
        this.bootstrap = String.join(",", addresses.values());
        addresses.forEach((id, address) -> brokers.put(id, new SuiteBroker(id, address, this)));
    }

    /** A thread that outlives its test can no longer do anything to the cluster of the next one. */
    void end() {
        ended = true;
    }

    void ask(Object... fields) {
        if (ended) throw new IllegalStateException("the test has ended");
        conversation.ask(fields);
    }

    /** Brings the features to the levels that the test asks for, and returns those that the cluster has not. */
    List<String> adoptFeatures() {
        List<String> refused = new ArrayList<>();
        try (Admin admin = admin()) {
            var levels = admin.describeFeatures().featureMetadata().get(30, TimeUnit.SECONDS).finalizedFeatures();
            for (Map.Entry<Feature, Short> asked : config.features().entrySet()) {
                String name = asked.getKey().featureName();
                FinalizedVersionRange now = levels.get(name);
                short level = now == null ? 0 : now.maxVersionLevel();
                if (level == asked.getValue()) continue;
                var type = level < asked.getValue() ? UpgradeType.UPGRADE : UpgradeType.SAFE_DOWNGRADE;
                try {
                    admin.updateFeatures(Map.of(name, new FeatureUpdate(asked.getValue(), type)), new UpdateFeaturesOptions())
                        .all().get(30, TimeUnit.SECONDS);
                } catch (ExecutionException error) {
                    refused.add(name + "=" + asked.getValue());
                }
            }
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
        return refused;
    }

    @Override public ClusterConfig config() { return config; }
    @Override public String bootstrapServers() { return bootstrap; }
    @Override public Type type() { return Type.KRAFT; }
    @Override public ListenerName clientListener() { return config.brokerListenerName(); }
    @Override public Optional<FaultHandlerException> firstFatalException() { return Optional.empty(); }
    @Override public Optional<FaultHandlerException> firstNonFatalException() { return Optional.empty(); }
    @Override public boolean started() { return true; }
    @Override public boolean stopped() { return ended; }
    @Override public void start() { }
    @Override public void stop() { brokers.values().forEach(SuiteBroker::shutdown); }
    @Override public void shutdownBroker(int id) { brokers.get(id).shutdown(); }
    @Override public void startBroker(int id) { brokers.get(id).startup(); }
    @Override public Set<Integer> brokerIds() { return brokers.keySet(); }
    @Override public List<Integer> brokerBoundPorts() { return brokers.values().stream().map(SuiteBroker::port).toList(); }
    @Override public Map<Integer, ControllerServer> controllers() { throw SuiteBroker.jvm("controllers()"); }
    @Override public Set<Integer> controllerIds() { throw SuiteBroker.jvm("controllerIds()"); }
    @Override public ListenerName controllerListenerName() { throw SuiteBroker.jvm("controllerListenerName()"); }
    @Override public String bootstrapControllers() { throw SuiteBroker.jvm("bootstrapControllers()"); }
    @Override public List<Authorizer> authorizers() { throw SuiteBroker.jvm("authorizers()"); }
    @Override public void ensureConsistentMetadata() { }
    @Override public void ensureConsistentMetadata(Collection<KafkaBroker> some, Collection<ControllerServer> controllers) { }

    @Override public Map<Integer, KafkaBroker> brokers() {
        return brokers.entrySet().stream().collect(Collectors.toMap(Map.Entry::getKey, entry -> entry.getValue().broker));
    }

    /** As in Kafka, the cluster has the protocol of KIP-848 if its feature {@code group.version} is at least 1. */
    @Override public Set<GroupProtocol> supportedGroupProtocols() {
        try (Admin admin = admin()) {
            FinalizedVersionRange level = admin.describeFeatures().featureMetadata().get(30, TimeUnit.SECONDS)
                .finalizedFeatures().get("group.version");
            return level != null && level.maxVersionLevel() >= 1
                ? Set.of(GroupProtocol.CLASSIC, GroupProtocol.CONSUMER)
                : Set.of(GroupProtocol.CLASSIC);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    @Override public String clusterId() {
        try (Admin admin = admin()) {
            return admin.describeCluster().clusterId().get(30, TimeUnit.SECONDS);
        } catch (Exception error) {
            throw new IllegalStateException(error);
        }
    }

    @Override public void waitForReadyBrokers() throws InterruptedException {
        TestUtils.waitForCondition(
            () -> alive().stream().allMatch(one -> one.metadata(List.of()).brokers().size() == alive().size()),
            WAIT_MS, "the brokers do not know each other");
    }

    @Override public void waitTopicCreation(String topic, int partitions) throws InterruptedException {
        waitFor(topic + " is not everywhere", admin -> {
            var told = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions();
            return told.size() == partitions && told.stream().allMatch(one -> one.leader() != null);
        });
    }

    @Override public void waitTopicDeletion(String topic) throws InterruptedException {
        waitFor(topic + " is still there", admin -> !admin.listTopics().names().get().contains(topic));
    }

    @Override public void waitAcls(AclBindingFilter filter, Collection<AccessControlEntry> entries) throws InterruptedException {
        waitFor("the ACLs are not everywhere", admin -> {
            Collection<AclBinding> told = admin.describeAcls(filter).values().get();
            return told.stream().map(AclBinding::entry).collect(Collectors.toSet()).equals(new HashSet<>(entries));
        });
    }

    private interface Condition {
        boolean holds(Admin admin) throws Exception;
    }

    /** Waits until the condition holds as each of the living brokers sees it. */
    private void waitFor(String otherwise, Condition condition) throws InterruptedException {
        for (SuiteBroker one : alive()) {
            Map<String, Object> only = Map.of("bootstrap.servers", "127.0.0.1:" + one.port());
            try (Admin admin = admin(only)) {
                TestUtils.waitForCondition(() -> {
                    try {
                        return condition.holds(admin);
                    } catch (ExecutionException notYet) {
                        return false;
                    }
                }, WAIT_MS, otherwise);
            }
        }
    }

    private List<SuiteBroker> alive() {
        return brokers.values().stream().filter(one -> !one.isShutdown()).toList();
    }
}
