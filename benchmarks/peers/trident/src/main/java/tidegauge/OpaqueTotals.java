package tidegauge;

import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.stream.Stream;
import org.apache.storm.Config;
import org.apache.storm.LocalCluster;
import org.apache.storm.redis.common.config.JedisPoolConfig;
import org.apache.storm.redis.common.mapper.RedisDataTypeDescription;
import org.apache.storm.redis.common.mapper.RedisDataTypeDescription.RedisDataType;
import org.apache.storm.redis.trident.state.Options;
import org.apache.storm.redis.trident.state.RedisMapState;
import org.apache.storm.task.TopologyContext;
import org.apache.storm.trident.TridentTopology;
import org.apache.storm.trident.operation.CombinerAggregator;
import org.apache.storm.trident.operation.TridentCollector;
import org.apache.storm.trident.spout.IBatchSpout;
import org.apache.storm.trident.state.OpaqueValue;
import org.apache.storm.trident.tuple.TridentTuple;
import org.apache.storm.tuple.Fields;
import org.apache.storm.tuple.Values;

/**
 * Counts and sums sales per shop in an opaque state in Redis, in local mode, and prints how long the batches took.
 *
 * <p>Settings are system properties: folder, with CSV files, one per batch; passes, how often they are read; warmUp, the
 * number of batches before the measurement; measured, the number of measured batches; hash, the key in Redis; pending,
 * the batches in flight; cache, the number of keys that the state keeps in memory; port and tasks. The password is in
 * the environment variable REDIS_PASSWORD.
 */
public final class OpaqueTotals {

    /** Emits a file's sales as a batch; the same number gives the same sales. After the last pass batches are empty. */
    static final class FileBatches implements IBatchSpout {
        static final CountDownLatch DONE = new CountDownLatch(1);
        static volatile long warm;
        static volatile double seconds;

        private final List<String> files;
        private final long last;
        private final long warmUp;
        private final long measured;

        FileBatches(List<String> files, long last, long warmUp, long measured) {
            this.files = files;
            this.last = last;
            this.warmUp = warmUp;
            this.measured = measured;
        }

        @Override
        public void open(Map<String, Object> conf, TopologyContext context) { }

        @Override
        public void emitBatch(long batch, TridentCollector collector) {
            if (batch > last) {
                return;
            }
            try (Stream<String> lines = Files.lines(Path.of(files.get((int) (batch % files.size()))))) {
                lines.forEach(line -> {
                    int comma = line.indexOf(',');
                    collector.emit(new Values(line.substring(0, comma), Double.valueOf(line.substring(comma + 1))));
                });
            } catch (IOException error) {
                throw new UncheckedIOException(error);
            }
        }

        /** Called once per committed batch, in order. */
        @Override
        public void ack(long batch) {
            if (batch == warmUp) {
                warm = System.nanoTime();
            } else if (batch == warmUp + measured) {
                seconds = (System.nanoTime() - warm) / 1e9;
            } else if (batch == last) {
                DONE.countDown();
            }
        }

        @Override
        public void close() { }

        @Override
        public Map<String, Object> getComponentConfiguration() {
            return null;
        }

        @Override
        public Fields getOutputFields() {
            return new Fields("shop", "x");
        }
    }

    /** A count and a sum, as a list of Number, because JSON may return other classes of numbers than were stored. */
    static final class CountAndSum implements CombinerAggregator<List<Number>> {
        @Override
        public List<Number> init(TridentTuple tuple) {
            return List.of(1L, tuple.getDouble(0));
        }

        @Override
        public List<Number> combine(List<Number> one, List<Number> other) {
            return List.of(
                one.get(0).longValue() + other.get(0).longValue(), one.get(1).doubleValue() + other.get(1).doubleValue());
        }

        @Override
        public List<Number> zero() {
            return List.of(0L, 0.0);
        }
    }

    public static void main(String[] arguments) throws Exception {
        List<String> files;
        try (Stream<Path> found = Files.list(Path.of(System.getProperty("folder")))) {
            files = found.map(Path::toString).sorted().toList();
        }
        long last = (long) files.size() * Integer.getInteger("passes");
        Options<OpaqueValue> options = new Options<>();
        options.localCacheSize = Integer.getInteger("cache");
        options.dataTypeDescription = new RedisDataTypeDescription(RedisDataType.HASH, System.getProperty("hash"));
        JedisPoolConfig redis = new JedisPoolConfig.Builder()
            .setHost("127.0.0.1").setPort(Integer.getInteger("port")).setPassword(System.getenv("REDIS_PASSWORD"))
            .setTimeout(60_000).build();

        TridentTopology topology = new TridentTopology();
        topology.newStream("sales", new FileBatches(files, last, Long.getLong("warmUp"), Long.getLong("measured")))
            .groupBy(new Fields("shop"))
            .persistentAggregate(
                RedisMapState.opaque(redis, options), new Fields("x"), new CountAndSum(), new Fields("totals"))
            .parallelismHint(Integer.getInteger("tasks"));

        Config conf = new Config();
        conf.setMaxSpoutPending(Integer.getInteger("pending"));
        conf.setMessageTimeoutSecs(300);
        conf.put(Config.TOPOLOGY_TRIDENT_BATCH_EMIT_INTERVAL_MILLIS, 1);
        LocalCluster cluster = new LocalCluster();
        cluster.submitTopology("totals", conf, topology.build());
        FileBatches.DONE.await();
        System.out.println("seconds " + FileBatches.seconds);
        System.out.flush();
        // Halts at once, because the cluster's own shutdown takes seconds.
        Runtime.getRuntime().halt(0);
    }
}
