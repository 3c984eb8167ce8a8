package org.apache.kafka.common.test;

import java.io.IOException;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import kafka.server.BrokerServer;
import org.apache.kafka.metadata.BrokerState;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;

/**
 * Stands in for the class of Kafka's by which the tests of Kafka Streams and Connect start brokers, and has a cluster
 * of Quorate started instead, by the program at the other end of stdin and stdout.
 */
public final class KafkaClusterTestKit implements AutoCloseable {
    private final int size;
    private final Map<String, String> settings;
    private final Map<Integer, Map<String, String>> overrides;
    private final Map<Integer, BrokerServer> brokers = new TreeMap<>();
    private final Map<Integer, String> addresses = new TreeMap<>();
    private final MockFaultHandler faults = new MockFaultHandler("nonFatalFaultHandler");

    private KafkaClusterTestKit(Builder builder) {
        size = builder.nodes.brokerNodes().size();
        settings = builder.settings;
        overrides = new TreeMap<>();
        builder.nodes.brokerNodes().forEach((id, node) -> overrides.put(id, node.propertyOverrides()));
    }

    public static final class Builder {
        private final TestKitNodes nodes;
        private final Map<String, String> settings = new TreeMap<>();

        public Builder(TestKitNodes nodes) {
            this.nodes = nodes;
        }

        public Builder setConfigProp(String key, Object value) {
            settings.put(key, String.valueOf(value));
            return this;
        }

        public KafkaClusterTestKit build() {
            return new KafkaClusterTestKit(this);
        }
    }

    public MockFaultHandler nonFatalFaultHandler() {
        return faults;
    }

    public void format() { }

    /** Has the brokers started, and learns their addresses. */
    public void startup() throws IOException {
        List<Object> line = new ArrayList<>(List.of("CLUSTER", "brokers=" + size));
        settings.forEach((key, value) -> line.add("set:" + key + "=" + value));
        overrides.forEach((id, some) -> some.forEach((key, value) -> line.add("set." + id + ":" + key + "=" + value)));
        List<String> answer = KitConversation.ask(line.toArray());
        for (String broker : answer.subList(1, answer.size())) {
            int at = broker.indexOf('=');
            int id = Integer.parseInt(broker.substring(0, at));
            addresses.put(id, broker.substring(at + 1));
            brokers.put(id, broker(id));
        }
    }

    public void waitForReadyBrokers() { }

    public String bootstrapServers() {
        return String.join(",", addresses.values());
    }

    public Map<Integer, BrokerServer> brokers() {
        return brokers;
    }

    @Override
    public void close() throws IOException {
        if (!addresses.isEmpty()) KitConversation.ask("END");
        addresses.clear();
        brokers.clear();
    }

    /** Returns an object that has a broker stopped and started, knows its state, and refuses everything else. */
    private static BrokerServer broker(int id) {
        BrokerState[] state = {BrokerState.RUNNING};
        return Mockito.mock(BrokerServer.class, called -> answer(called, id, state));
    }

    private static Object answer(InvocationOnMock called, int id, BrokerState[] state) throws IOException {
        switch (called.getMethod().getName()) {
            case "shutdown" -> {
                if (state[0] == BrokerState.RUNNING) KitConversation.ask("STOP", id);
                state[0] = BrokerState.NOT_RUNNING;
            }
            case "startup" -> {
                if (state[0] != BrokerState.RUNNING) KitConversation.ask("START", id);
                state[0] = BrokerState.RUNNING;
            }
            case "brokerState" -> {
                return state[0];
            }
            case "awaitShutdown", "toString" -> { }
            default -> throw new UnsupportedOperationException("needs a JVM broker: " + called.getMethod().getName());
        }
        return null;
    }
}
