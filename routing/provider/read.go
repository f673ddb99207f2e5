package provider

import (
	"errors"
	"io"
)

// BoundedReader reads at most Left bytes from R, like an io.LimitedReader that
// tells why it ended.
type BoundedReader struct {
	R    io.Reader
	Left int64

	TooLarge bool  // there is more
	Err      error // of R, other than io.EOF
}

// Read implements io.Reader.
func (b *BoundedReader) Read(p []byte) (int, error) {
	if int64(len(p)) > b.Left+1 {
		p = p[:b.Left+1]
	}
	n, err := b.R.Read(p)
	b.Left -= int64(n)
	switch {
	case b.Left < 0:
		b.TooLarge = true
		return 0, io.ErrUnexpectedEOF
	case err != nil && !errors.Is(err, io.EOF):
		b.Err = err
	}
	return n, err
}
