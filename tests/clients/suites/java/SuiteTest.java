import java.lang.reflect.Method;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.test.api.ClusterConfig;
import org.apache.kafka.common.test.api.ClusterConfigProperty;
import org.apache.kafka.common.test.api.ClusterFeature;
import org.apache.kafka.common.test.api.ClusterTemplate;
import org.apache.kafka.common.test.api.ClusterTest;
import org.apache.kafka.common.test.api.ClusterTestDefaults;
import org.apache.kafka.common.test.api.ClusterTests;
import org.apache.kafka.server.common.Feature;

/** One test: a method, and the cluster that its annotations ask for. A method that asks for several is several tests. */
record SuiteTest(String name, Class<?> type, Method method, ClusterConfig config) {
    private static final ClusterTestDefaults DEFAULTS = Plain.class.getAnnotation(ClusterTestDefaults.class);

    @ClusterTestDefaults
    private static final class Plain { }

    static List<SuiteTest> in(Class<?> type) throws ReflectiveOperationException {
        List<SuiteTest> tests = new ArrayList<>();
        Method[] methods = type.getDeclaredMethods();
        Arrays.sort(methods, Comparator.comparing(Method::getName));
        for (Method method : methods) {
            List<ClusterConfig> configs = configs(type, method);
            for (int i = 0; i < configs.size(); i++) {
                String name = type.getSimpleName() + "." + method.getName() + (configs.size() > 1 ? "[" + i + "]" : "");
                tests.add(new SuiteTest(name, type, method, configs.get(i)));
            }
        }
        return tests;
    }

    /** Returns the fields of a line that describes the test and its cluster. */
    Object[] described() {
        List<Object> fields = new ArrayList<>(List.of("TEST", name, "brokers=" + config.numBrokers()));
        fields.add("security=" + config.brokerSecurityProtocol());
        new TreeMap<>(config.serverProperties()).forEach((key, value) -> fields.add("set:" + key + "=" + value));
        new TreeMap<>(config.perServerOverrideProperties()).forEach((id, properties) -> {
            properties.forEach((key, value) -> fields.add("set." + id + ":" + key + "=" + value));
        });
        return fields.toArray();
    }

    @SuppressWarnings("unchecked")
    private static List<ClusterConfig> configs(Class<?> type, Method method) throws ReflectiveOperationException {
        ClusterTestDefaults defaults = type.getAnnotation(ClusterTestDefaults.class);
        List<ClusterConfig> configs = new ArrayList<>();
        ClusterTemplate template = method.getAnnotation(ClusterTemplate.class);
        if (template != null) {
            Method made = type.getDeclaredMethod(template.value());
            made.setAccessible(true);
            configs.addAll((List<ClusterConfig>) made.invoke(null));
        }
        for (ClusterTest asked : asked(method)) {
            configs.add(config(asked, defaults == null ? DEFAULTS : defaults));
        }
        return configs;
    }

    private static ClusterTest[] asked(Method method) {
        ClusterTests several = method.getAnnotation(ClusterTests.class);
        ClusterTest one = method.getAnnotation(ClusterTest.class);
        return several != null ? several.value() : one != null ? new ClusterTest[] {one} : new ClusterTest[0];
    }

    private static ClusterConfig config(ClusterTest asked, ClusterTestDefaults defaults) {
        Map<String, String> all = new HashMap<>();
        Map<Integer, Map<String, String>> one = new HashMap<>();
        for (ClusterConfigProperty[] properties : List.of(defaults.serverProperties(), asked.serverProperties())) {
            for (ClusterConfigProperty property : properties) {
                var into = property.id() == -1 ? all : one.computeIfAbsent(property.id(), id -> new HashMap<>());
                into.put(property.key(), property.value());
            }
        }
        Map<Feature, Short> features = new HashMap<>();
        for (ClusterFeature feature : asked.features()) features.put(feature.feature(), feature.version());
        return ClusterConfig.defaultBuilder()
            .setTypes(Set.of(asked.types().length == 0 ? defaults.types() : asked.types()))
            .setBrokers(asked.brokers() == 0 ? defaults.brokers() : asked.brokers())
            .setControllers(asked.controllers() == 0 ? defaults.controllers() : asked.controllers())
            .setDisksPerBroker(asked.disksPerBroker() == 0 ? defaults.disksPerBroker() : asked.disksPerBroker())
            .setBrokerListenerName(ListenerName.normalised(asked.brokerListener()))
            .setBrokerSecurityProtocol(asked.brokerSecurityProtocol())
            .setMetadataVersion(asked.metadataVersion())
            .setServerProperties(all)
            .setPerServerProperties(one)
            .setFeatures(features)
            .build();
    }
}
