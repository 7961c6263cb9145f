package tidegauge;

import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import net.minidev.json.JSONObject;
import net.minidev.json.parser.JSONParser;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.kafka.spout.FirstPollOffsetStrategy;
import org.apache.storm.kafka.spout.trident.KafkaTridentSpoutConfig;
import org.apache.storm.kafka.spout.trident.KafkaTridentSpoutOpaque;
import org.apache.storm.redis.common.config.JedisPoolConfig;
import org.apache.storm.redis.common.mapper.RedisDataTypeDescription;
import org.apache.storm.redis.common.mapper.RedisDataTypeDescription.RedisDataType;
import org.apache.storm.redis.trident.state.Options;
import org.apache.storm.redis.trident.state.RedisMapState;
import org.apache.storm.trident.TridentTopology;
import org.apache.storm.trident.operation.BaseFunction;
import org.apache.storm.trident.operation.TridentCollector;
import org.apache.storm.trident.operation.TridentOperationContext;
import org.apache.storm.trident.operation.builtin.Count;
import org.apache.storm.trident.state.OpaqueValue;
import org.apache.storm.trident.state.Serializer;
import org.apache.storm.trident.tuple.TridentTuple;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;
import redis.clients.jedis.Jedis;

/**
 * Counts the views of the Yahoo Streaming Benchmark per campaign and window, in an opaque state in Redis, in local mode.
 *
 * <p>Settings are system properties: servers and topic, of Kafka; port, of Redis; prefix, of its keys; windowMs, the
 * width of a window; joined, whether an event has its ad's id, to be looked up in Redis, or its campaign's; zookeeper,
 * the port of the ZooKeeper that keeps the batches' numbers and offsets when this process is killed; pending, polled,
 * cache and tasks. The password is in the environment variable REDIS_PASSWORD. A field of the hash `PREFIXcounts` is
 * `CAMPAIGN:START`, and its value `TXID,COUNT,PREVIOUS COUNT,MS` with the time at which it was written.
 */
public final class CampaignViews {

    private static JedisPoolConfig redis() {
        return new JedisPoolConfig.Builder()
            .setHost("127.0.0.1").setPort(Integer.getInteger("port")).setPassword(password()).setTimeout(60_000).build();
    }

    private static String password() {
        String given = System.getenv("REDIS_PASSWORD");
        return given == null || given.isEmpty() ? null : given;
    }

    /** Emits the campaign and the window's start of each view. Campaigns are read from Redis once per process and ad. */
    static final class Views extends BaseFunction {
        private final boolean joined = Boolean.getBoolean("joined");
        private final long windowMs = Long.getLong("windowMs");
        private final String prefix = System.getProperty("prefix");
        private final int port = Integer.getInteger("port");
        private transient Map<String, String> campaigns;
        private transient JSONParser parser;
        private transient Jedis jedis;

        @Override
        public void prepare(Map<String, Object> conf, TridentOperationContext context) {
            campaigns = new HashMap<>();
            parser = new JSONParser(JSONParser.MODE_PERMISSIVE);
            jedis = new Jedis("127.0.0.1", port);
            if (password() != null) {
                jedis.auth(password());
            }
        }

        @Override
        public void execute(TridentTuple tuple, TridentCollector collector) {
            JSONObject event;
            try {
                event = (JSONObject) parser.parse(tuple.getString(0));
            } catch (net.minidev.json.parser.ParseException error) {
                throw new IllegalArgumentException(error);
            }
            if (!"view".equals(event.getAsString("event_type"))) {
                return;
            }
            String campaign = joined
                ? campaigns.computeIfAbsent(event.getAsString("ad_id"), ad -> jedis.get(prefix + ad))
                : event.getAsString("campaign_id");
            long time = Long.parseLong(event.getAsString("event_time"));
            collector.emit(new Values(campaign, time / windowMs * windowMs));
        }

        @Override
        public void cleanup() {
            jedis.close();
        }
    }

    /** Writes a value as text, with the time of the write, because the benchmark's latency ends there. */
    static final class WithTime implements Serializer<OpaqueValue> {
        @Override
        public byte[] serialize(OpaqueValue value) {
            String previous = value.getPrev() == null ? "" : value.getPrev().toString();
            String text = value.getCurrTxid() + "," + value.getCurr() + "," + previous + "," + System.currentTimeMillis();
            return text.getBytes(StandardCharsets.UTF_8);
        }

        @Override
        public OpaqueValue deserialize(byte[] stored) {
            String[] parts = new String(stored, StandardCharsets.UTF_8).split(",");
            Long previous = parts[2].isEmpty() ? null : Long.valueOf(parts[2]);
            return new OpaqueValue<>(Long.valueOf(parts[0]), Long.valueOf(parts[1]), previous);
        }
    }

    public static void main(String[] arguments) throws Exception {
        Options<OpaqueValue> options = new Options<>();
        options.localCacheSize = Integer.getInteger("cache");
        options.keyFactory = key -> key.get(0) + ":" + key.get(1);
        options.serializer = new WithTime();
        options.dataTypeDescription =
            new RedisDataTypeDescription(RedisDataType.HASH, System.getProperty("prefix") + "counts");

        KafkaTridentSpoutConfig<String, String> kafka = KafkaTridentSpoutConfig
            .builder(System.getProperty("servers"), System.getProperty("topic"))
            .setProp(ConsumerConfig.GROUP_ID_CONFIG, "trident")
            .setProp(ConsumerConfig.MAX_POLL_RECORDS_CONFIG, Integer.getInteger("polled"))
            .setProp(ConsumerConfig.MAX_PARTITION_FETCH_BYTES_CONFIG, 64 * 1024 * 1024)
            .setProp(ConsumerConfig.KEY_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class)
            .setProp(ConsumerConfig.VALUE_DESERIALIZER_CLASS_CONFIG, StringDeserializer.class)
            // So that a restarted topology continues after its last batch; EARLIEST would read the topic again.
            .setFirstPollOffsetStrategy(FirstPollOffsetStrategy.UNCOMMITTED_EARLIEST)
            .build();

        int tasks = Integer.getInteger("tasks");
        TridentTopology topology = new TridentTopology();
        topology.newStream("ad-events", new KafkaTridentSpoutOpaque<>(kafka))
            .parallelismHint(tasks)
            .each(new Fields("value"), new Views(), new Fields("campaign", "window"))
            .groupBy(new Fields("campaign", "window"))
            .persistentAggregate(RedisMapState.opaque(redis(), options), new Count(), new Fields("seen"))
            .parallelismHint(tasks);

        Config conf = new Config();
        conf.setMaxSpoutPending(Integer.getInteger("pending"));
        conf.setMessageTimeoutSecs(300);
        // The interval of the published run whose name is "Storm Trident 20ms".
        conf.put(Config.TOPOLOGY_TRIDENT_BATCH_EMIT_INTERVAL_MILLIS, 20);
        conf.put(Config.TRANSACTIONAL_ZOOKEEPER_SERVERS, List.of("127.0.0.1"));
        conf.put(Config.TRANSACTIONAL_ZOOKEEPER_PORT, Integer.getInteger("zookeeper"));
        LocalCluster cluster = new LocalCluster();
        cluster.submitTopology("campaign-views", conf, topology.build());
        Thread.currentThread().join();
    }
}
