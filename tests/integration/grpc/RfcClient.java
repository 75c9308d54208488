// A client of RFC-010 in another language. Its messages, and the names of its calls, come from the RFC's proto alone.
//
// RfcClient ADDRESS START_LSN ENTRIES BATCH_SIZE_HINT: reads on until it has so many entries, or a terminal error, and writes
// a line of JSON for whatever happens. A cut line or a server that is away is waited for: then it goes on from its last ack.

import com.google.gson.JsonObject;
import com.google.protobuf.ByteString;
import com.google.protobuf.Descriptors;
import com.google.protobuf.Message;
import io.grpc.CallOptions;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.MethodDescriptor;
import io.grpc.Status;
import io.grpc.StatusRuntimeException;
import io.grpc.protobuf.ProtoUtils;
import io.grpc.stub.ClientCalls;
import java.nio.ByteBuffer;
import java.nio.channels.ClosedChannelException;
import java.util.Iterator;
import java.util.zip.CRC32C;
import kdb.wal.v1.Rfc010.AckRequest;
import kdb.wal.v1.Rfc010.AckResponse;
import kdb.wal.v1.Rfc010.Compression;
import kdb.wal.v1.Rfc010.GetLSNRequest;
import kdb.wal.v1.Rfc010.GetLSNResponse;
import kdb.wal.v1.Rfc010.SubscribeRequest;
import kdb.wal.v1.Rfc010.WalBatch;
import kdb.wal.v1.Rfc010.WalEntry;
import kdb.wal.v1.Rfc010.WalResponse;

public final class RfcClient {
    static final Descriptors.ServiceDescriptor SERVICE =
            kdb.wal.v1.Rfc010.getDescriptor().findServiceByName("WalStream");
    static final MethodDescriptor<SubscribeRequest, WalResponse> SUBSCRIBE =
            method("Subscribe", SubscribeRequest.getDefaultInstance(), WalResponse.getDefaultInstance());
    static final MethodDescriptor<AckRequest, AckResponse> ACK =
            method("Ack", AckRequest.getDefaultInstance(), AckResponse.getDefaultInstance());
    static final MethodDescriptor<GetLSNRequest, GetLSNResponse> GET_LSN =
            method("GetLSN", GetLSNRequest.getDefaultInstance(), GetLSNResponse.getDefaultInstance());

    final ManagedChannel channel;
    final int entriesMax;
    final int batchSizeHint;
    int entries = 0;
    /** The last LSN that was acked, or where the first subscription begins. */
    String place;
    /** The last LSN that was read. */
    String newest = "";

    RfcClient(ManagedChannel channel, String start, int entriesMax, int batchSizeHint) {
        this.channel = channel;
        this.place = start;
        this.entriesMax = entriesMax;
        this.batchSizeHint = batchSizeHint;
    }

    public static void main(String[] words) {
        ManagedChannel channel = Grpc.newChannelBuilder(words[0], InsecureChannelCredentials.create()).build();
        new RfcClient(channel, words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3])).run();
        channel.shutdownNow();
    }

    void run() {
        GetLSNResponse bounds =
                ClientCalls.blockingUnaryCall(channel, GET_LSN, patient(), GetLSNRequest.getDefaultInstance());
        say("bounds", "head", bounds.getHeadLsn(), "oldest", bounds.getOldestLsn());
        boolean more = true;
        while (more) {
            try {
                more = read();
            } catch (StatusRuntimeException ended) {
                Status status = ended.getStatus();
                if (!isCut(status)) {
                    say("status", "code", status.getCode().name(), "detail", String.valueOf(status.getDescription()));
                    return;
                }
                say("cut", "code", status.getCode().name());
            }
        }
    }

    /** Whether a line was cut: gRPC's Java calls that UNKNOWN where it was about to write. */
    static boolean isCut(Status status) {
        return status.getCode() == Status.Code.UNAVAILABLE || status.getCause() instanceof ClosedChannelException;
    }

    /** Reads one stream; returns whether another one is to follow it. */
    boolean read() {
        SubscribeRequest ask =
                SubscribeRequest.newBuilder().setStartLsn(place).setBatchSizeHint(batchSizeHint).build();
        say("subscribe", "start", place);
        Iterator<WalResponse> answers =
                ClientCalls.blockingServerStreamingCall(channel, SUBSCRIBE, patient(), ask);
        while (answers.hasNext()) {
            WalResponse answer = answers.next();
            if (answer.hasError()) {
                say("error", "text", answer.getError());
                return false;
            }
            if (answer.hasBatch()) {
                take(answer.getBatch());
                AckRequest ack = AckRequest.newBuilder().setAckLsn(answer.getBatch().getLastLsn()).build();
                AckResponse answered = ClientCalls.blockingUnaryCall(channel, ACK, patient(), ack);
                place = ack.getAckLsn();
                say("acked", "lsn", place, "watermark", answered.getWatermarkLsn());
            }
            if (entries >= entriesMax) {
                return false;
            }
        }
        say("ended");
        return true;
    }

    void take(WalBatch batch) {
        int count = batch.getEntriesCount();
        check(batch.getCompression() == Compression.NONE, "compressed, though nobody asked for it");
        check(count > 0 && count <= batchSizeHint, count + " entries");
        check(batch.getEntries(0).getLsn().equals(batch.getFirstLsn()), "first_lsn");
        check(batch.getEntries(count - 1).getLsn().equals(batch.getLastLsn()), "last_lsn");
        String before = "";
        for (WalEntry entry : batch.getEntriesList()) {
            check(entry.getLsn().compareTo(before) > 0, "LSNs must grow");
            check(entry.getChecksum().equals(checksumOf(entry)), "the checksum of " + entry.getLsn());
            before = entry.getLsn();
            if (before.compareTo(newest) <= 0) {
                say("again", "lsn", before);
                continue;
            }
            newest = before;
            entries++;
            say("entry", "lsn", before, "key", entry.getKey().toStringUtf8(), "value", entry.getValue().toStringUtf8(),
                    "op", entry.getOpType().name(), "prefix", entry.getKeyPrefix(), "tenant", entry.getTenantId(),
                    "at", Long.toString(entry.getCommittedAtMs()), "hlc", Long.toUnsignedString(entry.getHlcTs()));
        }
    }

    static ByteString checksumOf(WalEntry entry) {
        CRC32C crc = new CRC32C();
        crc.update(entry.getKey().toByteArray());
        crc.update(entry.getValue().toByteArray());
        return ByteString.copyFrom(ByteBuffer.allocate(4).putInt((int) crc.getValue()).array());
    }

    /** Calls wait for a server that is away, as long as the test lets them. */
    static CallOptions patient() {
        return CallOptions.DEFAULT.withWaitForReady();
    }

    static <Q extends Message, A extends Message> MethodDescriptor<Q, A> method(String name, Q question, A answer) {
        Descriptors.MethodDescriptor found = SERVICE.findMethodByName(name);
        return MethodDescriptor.<Q, A>newBuilder()
                .setType(found.isServerStreaming()
                        ? MethodDescriptor.MethodType.SERVER_STREAMING
                        : MethodDescriptor.MethodType.UNARY)
                .setFullMethodName(MethodDescriptor.generateFullMethodName(SERVICE.getFullName(), name))
                .setRequestMarshaller(ProtoUtils.marshaller(question))
                .setResponseMarshaller(ProtoUtils.marshaller(answer))
                .build();
    }

    static void check(boolean holds, String what) {
        if (!holds) {
            throw new IllegalStateException(what);
        }
    }

    static void say(String event, String... members) {
        JsonObject line = new JsonObject();
        line.addProperty("event", event);
        for (int index = 0; index < members.length; index += 2) {
            line.addProperty(members[index], members[index + 1]);
        }
        System.out.println(line);
        System.out.flush();
    }
}
