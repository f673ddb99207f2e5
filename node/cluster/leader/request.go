package leader

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"penstock/consensus/replica"
	"penstock/consensus/store"
	"penstock/node/api"
	"penstock/node/rpc"
)

// Requests sends requests to the leader.
type Requests struct {
	Tracker *Tracker
	Pool    *rpc.Pool // connections to the other nodes
	// Why says why there is no leader, as far as this node knows; "": there is
	// one.
	Why func() string
}

// Timeout is how long a request waits for a leader. A cluster that has
// had none for that long refuses it at once.
const Timeout = 10 * time.Second

// Handler makes a handler whose work the leader does, whichever node gets the
// request. It calls act on the leader. If act finds that the node no longer
// leads, it returns store.ErrNotLeader, or an api.Error of code
// NotLeader, and must have done nothing. While a leader is being elected the
// request waits; it is sent again only if it cannot have acted, or if its
// method changes nothing (rpc.Changing).
func Handler[Req, Resp any](r *Requests, act func(context.Context, *Req) (*Resp, error)) func(context.Context, *Req) (*Resp, error) {
	return func(ctx context.Context, req *Req) (resp *Resp, err error) {
		forwarded := rpc.Caller(ctx).Via != ""
		err = r.withLeader(ctx, func(ctx context.Context, leader string) error {
			var err error
			if leader == r.Tracker.self {
				resp, err = act(ctx, req)
				return requestError(err)
			}
			if forwarded { // the node that forwarded it tries the next leader
				return errNotLeader
			}
			client, err := r.Pool.Get(ctx, leader)
			if err != nil {
				return err
			}
			return rpc.Pass(ctx, client)
		}, forwarded)
		return resp, err
	}
}

var errNotLeader = api.Errorf(api.NotLeader, "this node is not the leader")

// Ask has the leader serve a request of this node's own: by act if this
// node leads, else by the method.
func Ask[Req, Resp any](
	ctx context.Context, r *Requests, method string, req *Req, act func(context.Context, *Req) (*Resp, error),
) (resp *Resp, err error) {
	err = r.withLeader(ctx, func(ctx context.Context, leader string) error {
		var err error
		if leader == r.Tracker.self {
			resp, err = act(ctx, req)
			return requestError(err)
		}
		client, err := r.Pool.Get(ctx, leader)
		if err != nil {
			return err
		}
		resp, err = rpc.Call[Resp](ctx, client, method, req)
		return err
	}, false)
	return resp, err
}

// withLeader calls try with the leader's ID until the request is done or
// refused, again for each new leader; with once it tries one leader alone.
func (r *Requests) withLeader(ctx context.Context, try func(ctx context.Context, leader string) error, once bool) error {
	timer := time.NewTimer(Timeout)
	defer timer.Stop()
	var last error
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
		changed := r.Tracker.Changed()
		leader := r.Tracker.ID()
		if leader != "" {
			err := r.callLeader(ctx, leader, try)
			if once || !SafeToResend(err) {
				return err
			}
			last = err
		} else if once {
			return errNotLeader
		} else if r.Tracker.AbsentFor() > Timeout {
			return r.NoLeader(ctx, last)
		}
		wait := time.NewTimer(pause) // a leader that cannot be reached may still lead
		if leader == "" {
			wait.Reset(time.Second)
		}
		select {
		case <-changed:
		case <-wait.C:
		case <-timer.C:
			wait.Stop()
			return r.NoLeader(ctx, last)
		case <-ctx.Done():
			wait.Stop()
			return r.NoLeader(ctx, errors.Join(ctx.Err(), last))
		}
		wait.Stop()
	}
}

// replacedLeaderGrace is how long a request waits for the answer of a leader
// that has been replaced. One that was cut off will not answer; until it does,
// the request's outcome is unknown.
const replacedLeaderGrace = time.Second

// callLeader calls try, and cancels it replacedLeaderGrace after another node
// has replaced that leader.
func (r *Requests) callLeader(ctx context.Context, leader string, try func(ctx context.Context, leader string) error) error {
	if leader == r.Tracker.self {
		return try(ctx, leader) // the store reports the outcome
	}
	attempt, cancel := context.WithCancel(ctx)
	defer cancel()
	defer r.Tracker.whenReplaced(leader, cancel)()
	err := try(attempt, leader)
	var refused *api.Error
	cancelled := err != nil && attempt.Err() != nil && ctx.Err() == nil && !errors.As(err, &refused)
	switch {
	case rpc.Reading(ctx) && (cancelled || UnknownOutcome(err)):
		return api.Errorf(api.Unavailable, "the leader was lost before it answered")
	case cancelled:
		return api.Errorf(api.UnknownOutcome,
			"the leader was lost before it answered: the change may have been made; the same request may be sent again")
	}
	return err
}

// NoLeader returns the refusal of a request that found no leader, with the
// reason.
func (r *Requests) NoLeader(ctx context.Context, last error) error {
	why := r.Why()
	switch {
	case why != "":
	case last != nil:
		why = "the request to the leader failed: " + strings.ReplaceAll(last.Error(), "\n", "; ")
	default:
		why = "no leader was found in time"
	}
	if rpc.Reading(ctx) {
		return api.Errorf(api.NoLeader, "%s", why)
	}
	return api.Errorf(api.NoLeader, "nothing was changed: %s", why)
}

// UnknownOutcome reports whether a request that failed with err may have acted.
func UnknownOutcome(err error) bool {
	return errors.Is(err, rpc.ErrLost) || RefusedAs(err, api.UnknownOutcome)
}

// RefusedAs reports whether a request was refused with a code.
func RefusedAs(err error, code api.Code) bool {
	var refused *api.Error
	return errors.As(err, &refused) && refused.Code == code
}

// RetryUnknown makes a handler retry after the leader was lost before it
// answered: for requests that are the same whether they act once or twice. done
// are the refusals of a repetition which mean that an earlier attempt has
// acted.
func RetryUnknown[Req, Resp any](
	act func(context.Context, *Req) (*Resp, error), done ...api.Code,
) func(context.Context, *Req) (*Resp, error) {
	return func(ctx context.Context, req *Req) (*Resp, error) {
		resp, err := act(ctx, req)
		if rpc.Caller(ctx).Via != "" { // the node that forwarded it retries
			return resp, err
		}
		first, end := err, time.Now().Add(Timeout)
		for UnknownOutcome(err) && time.Now().Before(end) {
			select {
			case <-time.After(unknownRetryPause):
			case <-ctx.Done():
				return nil, first
			}
			resp, err = act(ctx, req)
			var refused *api.Error
			switch {
			case err != nil && ctx.Err() != nil && !errors.As(err, &refused): // ctx ended during the attempt
				return nil, first
			case !errors.As(err, &refused):
			case slices.Contains(done, refused.Code):
				return new(Resp), nil
			case refused.Code == api.NoLeader, refused.Code == api.Unavailable, refused.Code == api.Deadline:
				return nil, first // the first attempt may still have acted
			case refused.Code == api.Unauthenticated, refused.Code == api.Forbidden:
				return nil, first // the first attempt may have removed this very node, so that the leader takes nothing from it
			}
		}
		return resp, err
	}
}

// unknownRetryPause is the pause before a request with an unknown outcome is
// repeated.
const unknownRetryPause = 50 * time.Millisecond

// SafeToResend reports whether a request that failed with err cannot have
// acted, so that it may be sent to the next leader.
func SafeToResend(err error) bool {
	var refusal *api.Error
	switch {
	case err == nil:
		return false
	case errors.Is(err, rpc.ErrLost), errors.Is(err, store.ErrUnknown):
		return false
	case errors.As(err, &refusal):
		return refusal.Code == api.NotLeader || refusal.Code == api.Unavailable
	}
	return errors.Is(err, rpc.ErrUnreachable) || errors.Is(err, store.ErrNotLeader)
}

// requestError translates an error of the store into one of a request.
func requestError(err error) error {
	switch {
	case errors.Is(err, store.ErrNotLeader):
		return errNotLeader
	case errors.Is(err, store.ErrUnknown):
		return api.Errorf(api.UnknownOutcome, "the change may have been made: %v", err)
	case errors.Is(err, store.ErrClosed), errors.Is(err, replica.ErrBusy):
		return api.Errorf(api.Unavailable, "%v", err)
	}
	return err
}

// TranslatingErrors makes a handler translate its errors with requestError.
func TranslatingErrors[Req, Resp any](fn func(context.Context, *Req) (*Resp, error)) func(context.Context, *Req) (*Resp, error) {
	return func(ctx context.Context, req *Req) (*Resp, error) {
		resp, err := fn(ctx, req)
		return resp, requestError(err)
	}
}
