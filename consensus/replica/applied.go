package replica

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
	"slices"
)

// appliedFile records how far this server has applied the log, so that after a
// restart it can serve the same content without contact to the cluster. Records
// alternate between two slots and are not synced: a torn one leaves the one
// before it. Records lost in a power failure cost nothing but slightly older
// content until another server is reachable.
type appliedFile struct {
	f         *os.File
	slot      int64    // slot of the next record: 0 or 1
	recovered []record // the records found at open, newest first
}

// record identifies a log entry that was applied here.
type record struct{ index, term uint64 }

// The record format: magic, index and term (big endian), and the CRC-32C of
// these 24 bytes.
const (
	appliedMagic = "PSKAPPL1"
	appliedSize  = 8 + 8 + 8 + 4
	// appliedSlot is the distance of the slots, so that no disk tears both at
	// once.
	appliedSlot = 4096
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

func openApplied(path string) (*appliedFile, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	a := &appliedFile{f: f}
	for slot := range int64(2) {
		var b [appliedSize]byte
		if _, err := f.ReadAt(b[:], slot*appliedSlot); err != nil {
			if errors.Is(err, io.EOF) {
				continue
			}
			f.Close()
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		r, ok := parseRecord(b[:])
		if !ok {
			continue
		}
		if len(a.recovered) > 0 && r.index > a.recovered[0].index || len(a.recovered) == 0 {
			a.slot = 1 - slot
		}
		a.recovered = append(a.recovered, r)
	}
	slices.SortFunc(a.recovered, func(x, y record) int { return int(int64(y.index - x.index)) })
	return a, nil
}

func parseRecord(b []byte) (r record, ok bool) {
	if len(b) != appliedSize || string(b[:8]) != appliedMagic ||
		binary.BigEndian.Uint32(b[24:]) != crc32.Checksum(b[:24], castagnoli) {
		return record{}, false
	}
	return record{binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:])}, true
}

func appendRecord(b []byte, r record) []byte {
	start := len(b)
	b = append(b, appliedMagic...)
	b = binary.BigEndian.AppendUint64(b, r.index)
	b = binary.BigEndian.AppendUint64(b, r.term)
	return binary.BigEndian.AppendUint32(b, crc32.Checksum(b[start:], castagnoli))
}

// write records an entry. It drops errors, which affect only the content served
// after a restart; the next write uses the same slot again.
func (a *appliedFile) write(index, term uint64) {
	var b [appliedSize]byte
	if _, err := a.f.WriteAt(appendRecord(b[:0], record{index, term}), a.slot*appliedSlot); err == nil {
		a.slot = 1 - a.slot
	}
}

func (a *appliedFile) Close() error { return a.f.Close() }
