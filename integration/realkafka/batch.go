package realkafka

import (
	"encoding/binary"
	"hash/crc32"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Batch returns an uncompressed record batch (magic 2) of the values, as in a
// Produce request, without producer ID and sequence.
func Batch(at time.Time, values ...[]byte) []byte {
	var body []byte
	for i, v := range values {
		rec := kmsg.Record{OffsetDelta: int32(i), Value: v}
		rec.Length = int32(len(rec.AppendTo(nil)) - 1) // a Length of 0 takes one byte
		body = rec.AppendTo(body)
	}
	b := kmsg.RecordBatch{
		PartitionLeaderEpoch: -1, Magic: 2, LastOffsetDelta: int32(len(values) - 1),
		FirstTimestamp: at.UnixMilli(), MaxTimestamp: at.UnixMilli(),
		ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(values)), Records: body,
	}
	raw := b.AppendTo(nil)
	binary.BigEndian.PutUint32(raw[8:], uint32(len(raw)-12))
	// The checksum covers what follows it.
	binary.BigEndian.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}
