package scheduler

// entries is a heap ordered by due time.
type entries []*Entry

func (h entries) Len() int           { return len(h) }
func (h entries) Less(i, j int) bool { return h[i].due.Before(h[j].due) }
func (h entries) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push implements heap.Interface.
func (h *entries) Push(x any) {
	e := x.(*Entry)
	e.index = len(*h)
	*h = append(*h, e)
}

// Pop implements heap.Interface.
func (h *entries) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

// queue is a FIFO. Removed entries are dropped when they reach its head.
type queue struct{ list []*Entry }

func (q *queue) push(e *Entry) { q.list = append(q.list, e) }

func (q *queue) head() *Entry {
	for len(q.list) > 0 && q.list[0].place == removed {
		q.pop()
	}
	if len(q.list) == 0 {
		return nil
	}
	return q.list[0]
}

func (q *queue) pop() *Entry {
	e := q.list[0]
	q.list[0] = nil
	q.list = q.list[1:]
	return e
}
