package multitenant

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"regexp/syntax"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Members of a consumer group may subscribe to what matches an expression
// (ConsumerGroupHeartbeat v1), and a topology of a streams group may read what
// does (StreamsGroupHeartbeat), which the broker evaluates over the topics of all
// tenants: it must match the whole name (RE2/J, Pattern.matches). To put the
// prefix before it would be unsound: "a)|(b", "\Qa" or a "#" in some mode would
// make something else of what stands around it. So none of what the client wrote
// reaches the broker. It is parsed here, by the library that RE2/J is a port of,
// and rewritten in a subset of its language:
//
//	^prefix(?:E)$    E = E|E, EE, (?:E)*, (?:E)+, (?:E)?, (?:E){n,m}, a name's
//	                 character, ".", a class of a name's characters, "/"
//
// Whatever E is, all of it is between the parentheses: there are no backslashes
// in it but before a dot, no flags, no anchors, and no brackets but those of
// classes. So nothing matches that does not begin with the prefix; and since
// names have the characters of legal only, behind it the same matches as the
// client's own expression did ("/" stands for what never does).
//
// An expression that cannot be written so is refused by the broker, in its own
// words and its own order, as one that is no expression at all: in its place
// goes one of invalidExpressions. These are the ones that have \b or \B, or "^"
// or "$" in what is repeated a number of times.
//
// What the client wrote is kept in the expression, where it never matches, for
// ConsumerGroupDescribe to give back: ^prefix(?:E|/base64)$.

const (
	neverMatches     = "/" // in no name
	expressionSuffix = ")$"
	// invalidRegularExpression is the broker's error.
	invalidRegularExpression = 128
	// maxExpression bounds what is sent, in bytes.
	maxExpression = maxString
)

// subscription is the State of a request with an expression.
type subscription struct {
	expression string // the client's
	rewritten  string // that the broker got
	fault      error  // why it is refused, where the broker cannot say so
}

func (t *tenant) expressionPrefix() string { return "^" + regexp.QuoteMeta(t.prefix) + "(?:" }

// rewriteExpression returns the expression that stands for a client's at the
// broker.
func (t *tenant) rewriteExpression(expression string) (string, error) {
	if len(expression) > maxExpression {
		return "", &syntax.Error{Code: syntax.ErrLarge, Expr: expression}
	}
	parsed, err := syntax.Parse(expression, syntax.Perl)
	if err != nil {
		return "", err
	}
	var w expressionWriter
	if err := w.write(parsed); err != nil {
		return "", err
	}
	inside := w.String()
	if inside != expression || strings.Contains(inside, neverMatches) {
		inside += "|" + neverMatches + base64.RawURLEncoding.EncodeToString([]byte(expression))
	}
	ours := t.expressionPrefix() + inside + expressionSuffix
	if len(ours) > maxExpression {
		return "", &syntax.Error{Code: syntax.ErrLarge, Expr: expression}
	}
	return ours, nil
}

// originalExpression returns the client's expression. ok is false if
// rewriteExpression did not make it.
func (t *tenant) originalExpression(ours string) (expression string, ok bool) {
	inside, ok := strings.CutPrefix(ours, t.expressionPrefix())
	if !ok {
		return "", false
	}
	if inside, ok = strings.CutSuffix(inside, expressionSuffix); !ok {
		return "", false
	}
	if at := strings.LastIndex(inside, neverMatches); at >= 0 {
		b, err := base64.RawURLEncoding.DecodeString(inside[at+len(neverMatches):])
		inside, ok = string(b), err == nil
	}
	return inside, ok
}

// invalidExpressions are expressions that no broker accepts, by what is wrong
// with them.
var invalidExpressions = map[syntax.ErrorCode]string{
	syntax.ErrMissingParen: "(", syntax.ErrUnexpectedParen: ")", syntax.ErrMissingBracket: "[", syntax.ErrInvalidEscape: `\E`,
	syntax.ErrMissingRepeatArgument: "*", syntax.ErrInvalidRepeatOp: "a**", syntax.ErrInvalidRepeatSize: "a{2,1}",
	syntax.ErrInvalidCharRange: "[b-a]", syntax.ErrInvalidPerlOp: "(?#", syntax.ErrInvalidNamedCapture: "(?P<>a)",
	syntax.ErrTrailingBackslash: `\`,
}

// rewriteSubscription replaces a member's expression in its request. An empty
// one ends a subscription.
func (c *call) rewriteSubscription(r *kmsg.ConsumerGroupHeartbeatRequest) {
	if r.SubscribedTopicRegex == nil || *r.SubscribedTopicRegex == "" {
		return
	}
	s := &subscription{expression: strings.ToValidUTF8(*r.SubscribedTopicRegex, "\uFFFD")} // as brokers read it
	if s.rewritten, s.fault = c.rewriteExpression(s.expression); s.fault != nil {
		s.rewritten = invalidExpressions[syntax.ErrMissingBracket]
		var parse *syntax.Error
		if errors.As(s.fault, &parse) && invalidExpressions[parse.Code] != "" {
			s.rewritten, s.fault = invalidExpressions[parse.Code], nil // the broker says why
		}
	}
	c.x.State = s
	r.SubscribedTopicRegex = &s.rewritten
}

// restoreSubscriptionError puts the client's expression back into the broker's
// message about it, "SubscribedTopicRegex `...` is not a valid ...: why.". It
// returns false for any other message.
func (c *call) restoreSubscriptionError(r *kmsg.ConsumerGroupHeartbeatResponse) bool {
	s, ok := c.x.State.(*subscription)
	if !ok || r.ErrorCode != invalidRegularExpression || r.ErrorMessage == nil {
		return false
	}
	before, behind, ok := strings.Cut(*r.ErrorMessage, "`"+s.rewritten+"`")
	if !ok {
		return false
	}
	c.unprefixMessage(&before)
	c.unprefixMessage(&behind)
	if s.fault != nil {
		behind = fmt.Sprintf(" is not a valid regular expression: %v.", s.fault)
	}
	text := before + "`" + s.expression + "`" + behind
	r.ErrorMessage = &text
	return true
}

// restoreSubscription returns what a client wrote. An expression that did not come
// through the proxy says nothing about the tenant's names, and is not shown.
func (c *call) restoreSubscription(ours *string) *string {
	if ours == nil || *ours == "" {
		return ours
	}
	expression, ok := c.originalExpression(*ours)
	if !ok {
		return nil
	}
	return &expression
}
