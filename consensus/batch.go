package consensus

// maxBatch bounds a batch, as its size says: 64 MiB.
const maxBatch = 64 << 20

// opOverhead is about what an operation takes in memory beside its texts and value.
const opOverhead = 64

// size is what the batch counts against its bound, in bytes.
func (b *Batch) size() int {
	n := len(b.Note.Who) + len(b.Note.What)
	for i := range b.Ops {
		op := &b.Ops[i]
		n += opOverhead + len(op.Kind) + len(op.Name) + len(op.Value)
	}
	return n
}
