package kubeapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

// Get reads the JSON at a path of the server. Its errors are the server's, as
// package apierrors tells them apart, or those of reading.
func (c *Client) Get(ctx context.Context, path string, into any) error {
	return c.do(ctx, into, func(r *rest.RESTClient) *rest.Request { return r.Get().AbsPath(path) })
}

// Patch sends a JSON merge patch (RFC 7386) to a path of the server, and reads
// the answer. Its errors are Get's.
func (c *Client) Patch(ctx context.Context, path string, patch []byte, into any) error {
	return c.do(ctx, into, func(r *rest.RESTClient) *rest.Request { return r.Patch(types.MergePatchType).AbsPath(path).Body(patch) })
}

func (c *Client) do(ctx context.Context, into any, make func(*rest.RESTClient) *rest.Request) error {
	if err := c.limiter.Wait(ctx); err != nil {
		return err
	}
	m := newMeter(c.cfg.MaxBytes)
	ctx, cancel := context.WithTimeoutCause(context.WithValue(ctx, meterKey{}, m), c.cfg.Timeout, errSilent)
	defer cancel()
	for _, group := range c.groups { // any: the path is absolute
		text, err := make(group).MaxRetries(0).SetHeader("Accept", "application/json").Do(ctx).Raw()
		switch {
		case m.exceeded.Load():
			return errTooLarge
		case err != nil && errors.Is(context.Cause(ctx), errSilent):
			return errSilent
		case err != nil:
			return err
		}
		return json.Unmarshal(text, into)
	}
	return fmt.Errorf("kubernetes: %w", errNoGroup)
}

var errNoGroup = errors.New("a client of no group")

// Explain returns an error of Get or Patch with where it occurred and what to do,
// without our credentials. What is the operation, such as "patch services/status".
func (c *Client) Explain(what string, err error) error {
	at := fmt.Sprintf("kubernetes at %s: %s", c.host, what)
	switch {
	case err == nil, errors.Is(err, context.Canceled):
		return err
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s: %w (401 Unauthorized): renew those of %s", at, ErrCredentials, c.origin)
	case errors.Is(err, errSilent):
		return fmt.Errorf("%s: no answer within %v: check the address, and what is in between", at, c.cfg.Timeout)
	}
	return fmt.Errorf("%s: %s", at, c.Clean(err))
}
