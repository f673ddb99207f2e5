package reactor

// Output that the kernel did not take is kept in chunks of a few sizes, which
// the loop's pool hands out and takes back: a socket with nothing pending
// holds none.

// chunk is a buffer in a socket's queue. The queue is a ring: the socket
// points to its tail, and the tail to the head.
type chunk struct {
	next *chunk
	b    []byte // its capacity is one of chunkSizes
	off  int    // b[:off] is sent
}

// chunkSizes are the classes. What is left of one read fits in the largest
// one unless a caller chose a larger read buffer; then it takes several.
var chunkSizes = [...]int{2 << 10, 8 << 10, 32 << 10, 64 << 10}

// maxIdleChunks bounds what the pool keeps of each class, in bytes; what
// comes back beyond it is the garbage collector's.
const maxIdleChunks = 1 << 20

type chunkPool struct {
	free [len(chunkSizes)]*chunk
	n    [len(chunkSizes)]int
}

func (p *chunkPool) get(n int) *chunk {
	class := 0
	for class < len(chunkSizes)-1 && chunkSizes[class] < n {
		class++
	}
	c := p.free[class]
	if c == nil {
		return &chunk{b: make([]byte, 0, chunkSizes[class])}
	}
	p.free[class], c.next = c.next, nil
	p.n[class]--
	return c
}

func (p *chunkPool) put(c *chunk) {
	for class, size := range chunkSizes {
		if size == cap(c.b) && p.n[class]*size < maxIdleChunks {
			c.b, c.off, c.next = c.b[:0], 0, p.free[class]
			p.free[class] = c
			p.n[class]++
			return
		}
	}
}

// keep queues a copy of p behind what is pending.
func (s *Socket) keep(p []byte) {
	s.kept += len(p)
	s.loop.pending.Add(int64(len(p)))
	for len(p) > 0 {
		c := s.out
		if c == nil || len(c.b) == cap(c.b) {
			c = s.loop.chunks.get(len(p))
			if s.out == nil {
				c.next = c
			} else {
				c.next, s.out.next = s.out.next, c
			}
			s.out = c
		}
		n := copy(c.b[len(c.b):cap(c.b)], p)
		c.b = c.b[:len(c.b)+n]
		p = p[n:]
	}
}

// sent takes n bytes off the head chunk.
func (s *Socket) sent(n int) {
	s.kept -= n
	s.loop.pending.Add(-int64(n))
	c := s.out.next
	if c.off += n; c.off < len(c.b) {
		return
	}
	if c == s.out {
		s.out = nil
	} else {
		s.out.next = c.next
	}
	s.loop.chunks.put(c)
}

// dropPending forgets all that is pending.
func (s *Socket) dropPending() {
	for s.out != nil {
		c := s.out.next
		s.sent(len(c.b) - c.off)
	}
}
