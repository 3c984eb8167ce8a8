import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import kafka.cluster.Partition;
import kafka.log.LogManager;
import kafka.server.ReplicaManager;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.message.DescribeLogDirsRequestData;
import org.apache.kafka.common.requests.DescribeLogDirsRequest;
import org.apache.kafka.common.requests.DescribeLogDirsResponse;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;
import scala.Option;

/**
 * The replicas of a broker where a test looks into Kafka's managers of them: which there are (DescribeLogDirs),
 * and which lead (Metadata). The rest is refused by name.
 */
final class SuiteReplicas {
    private static final short DESCRIBE_LOG_DIRS_VERSION = 4;

    private final SuiteBroker broker;
    private final UnifiedLog log = mock(UnifiedLog.class, Map.of());
    private final Map<TopicPartition, Partition> partitions = new ConcurrentHashMap<>();
    private final LogManager logs = mock(LogManager.class, Map.of(
        "getLog", call -> log(call.getArgument(0)),
        "liveLogDirs", call -> scala.collection.immutable.Nil$.MODULE$));
    private final ReplicaManager replicas = mock(ReplicaManager.class, Map.of(
        "logManager", call -> logs,
        "localLog", call -> log(call.getArgument(0)),
        "onlinePartition", call -> partition(call.getArgument(0))));

    SuiteReplicas(SuiteBroker broker) {
        this.broker = broker;
    }

    LogManager logManager() {
        return logs;
    }

    ReplicaManager replicaManager() {
        return replicas;
    }

    private Option<UnifiedLog> log(TopicPartition tp) {
        return isHere(tp) ? Option.apply(log) : Option.empty();
    }

    private Option<Partition> partition(TopicPartition tp) {
        return isHere(tp) ? Option.apply(partitions.computeIfAbsent(tp, this::made)) : Option.empty();
    }

    private Partition made(TopicPartition tp) {
        return mock(Partition.class, Map.of("leaderIdIfLocal", call -> leaderIfLocal(tp)));
    }

    private Option<Object> leaderIfLocal(TopicPartition tp) {
        boolean leads = broker.metadata(List.of(tp.topic())).topicMetadata().stream()
            .flatMap(topic -> topic.partitionMetadata().stream())
            .anyMatch(one -> one.partition() == tp.partition() && one.leaderId.filter(id -> id == broker.id()).isPresent());
        return leads ? Option.apply(broker.id()) : Option.empty();
    }

    private boolean isHere(TopicPartition tp) {
        try {
            var request = new DescribeLogDirsRequest.Builder(new DescribeLogDirsRequestData().setTopics(null));
            DescribeLogDirsResponse told = broker.ask(request.build(DESCRIBE_LOG_DIRS_VERSION));
            return told.data().results().stream().flatMap(folder -> folder.topics().stream())
                .filter(topic -> topic.name().equals(tp.topic()))
                .flatMap(topic -> topic.partitions().stream())
                .anyMatch(one -> one.partitionIndex() == tp.partition());
        } catch (IOException error) {
            throw new IllegalStateException(error);
        }
    }

    private static <T> T mock(Class<T> type, Map<String, Answer<?>> answers) {
        return Mockito.mock(type, call -> answer(type, call, answers));
    }

    private static Object answer(Class<?> type, InvocationOnMock call, Map<String, Answer<?>> answers) throws Throwable {
        String name = call.getMethod().getName();
        if (name.equals("toString")) return type.getSimpleName();
        Answer<?> answer = answers.get(name);
        if (answer == null) throw SuiteBroker.jvm(type.getSimpleName() + "." + name);
        return answer.answer(call);
    }
}
