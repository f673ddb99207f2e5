package validate

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"penstock/routing/resource"
)

const (
	// maxKafkaRequests bounds the entries of kafka in one destination.
	maxKafkaRequests = 100
	// maxKafkaName is the longest name of a topic (Kafka's Topic.MAX_NAME_LENGTH); groups
	// and transactional ids have no bound of their own.
	maxKafkaName = 249
	// maxPrincipal and maxClientID bound names of clients. A client id that is longer is
	// cut before it is compared, and then only a prefix can match.
	maxPrincipal = 300
	maxClientID  = 63
)

// onlyKafka reports whether a permission is about Kafka requests alone.
func onlyKafka(p *resource.TrafficPermission) bool {
	return len(p.To) > 0 && !slices.ContainsFunc(p.To, func(to resource.PermissionDestination) bool { return len(to.Kafka) == 0 })
}

// refuseKafkaSource refuses what is known only once a client has sent Kafka requests.
func refuseKafkaSource(path string, s *resource.TrafficSource, fault Report) {
	const text = "is known of Kafka requests only, in a TrafficPermission of which every entry of to has kafka"
	if len(s.Principals) > 0 {
		fault(path+".principals", text, nil)
	}
	if len(s.ClientIDs) > 0 {
		fault(path+".clientIDs", text, nil)
	}
}

func validateKafkaRequests(path string, k *resource.KafkaRequests, fault Report) {
	checkList(path+".operations", k.Operations, checkOperation, fault)
	checkList(path+".topics", k.Topics, checkTopic, fault)
	checkList(path+".groups", k.Groups, checkKafkaName, fault)
	checkList(path+".transactionalIDs", k.TransactionalIDs, checkKafkaName, fault)
}

func checkOperation(s string) error {
	words := strings.Fields(resource.KafkaOperations)
	if slices.Contains(words, s) {
		return nil
	}
	return fmt.Errorf("must be one of %s", strings.Join(words, ", "))
}

func checkTopic(s string) error {
	plain := strings.TrimSuffix(s, "*")
	if strings.Trim(plain, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") != "" {
		return fmt.Errorf("must consist of letters, digits, dots, underscores and hyphens; * may only be the last character, for a prefix")
	}
	if s == "." || s == ".." {
		return fmt.Errorf("is no name of a topic")
	}
	return checkKafkaName(s)
}

func checkKafkaName(s string) error { return checkPattern(s, maxKafkaName) }

func checkClientID(s string) error { return checkPattern(s, maxClientID) }

func checkPrincipal(s string) error {
	if len(s) <= len("User:") || !strings.HasPrefix(s, "User:") {
		return fmt.Errorf("must be User: and a name")
	}
	return checkPattern(s, maxPrincipal)
}

// checkPattern checks a name, or a prefix before "*".
func checkPattern(s string, longest int) error {
	switch {
	case s == "":
		return fmt.Errorf("must not be empty")
	case len(s) > longest:
		return fmt.Errorf("has %d bytes, and may have at most %d", len(s), longest)
	case !utf8.ValidString(s):
		return fmt.Errorf("must be UTF-8")
	case strings.Contains(strings.TrimSuffix(s, "*"), "*"):
		return fmt.Errorf("may have * only as its last character, for a prefix")
	}
	return nil
}
