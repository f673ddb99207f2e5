package resource

import (
	"fmt"
	"strings"
	"testing"
)

// The password of a user comes from the file that a node has read, and shows nowhere.
func TestPasswordsOfMySQLUsers(t *testing.T) {
	s := &Service{
		TLS:   &ServiceTLS{CAFile: "/run/ca"},
		MySQL: ServiceMySQL{Move: "reconnect", Credentials: []MySQLCredential{{User: "a", PasswordFile: "/run/a"}, {User: "b", PasswordFile: "/run/b"}}},
	}
	var names []string
	for _, f := range s.Followed() {
		names = append(names, f.Path+"="+f.Name)
	}
	const want = "spec.tls.caFile=/run/ca spec.mysql.credentials[0].passwordFile=/run/a spec.mysql.credentials[1].passwordFile=/run/b"
	if got := strings.Join(names, " "); got != want {
		t.Errorf("followed: %s\nwant %s", got, want)
	}
	if n := len(s.Paths()); n != 3 {
		t.Errorf("%d paths, want 3", n)
	}
	if _, ok := s.MySQL.Password("a"); ok {
		t.Error("there is a password before the file is read")
	}
	s.TLS = nil
	for _, bad := range []string{"", "\n", "two\nlines", "a\x00b"} {
		if _, err := s.WithContent([]string{"right", bad}); err == nil || strings.Contains(err.Error(), "right") || bad != "" && bad != "\n" && strings.Contains(err.Error(), bad) {
			t.Errorf("a file with %q: %v, want an error without content", bad, err)
		}
	}
	spec, err := s.WithContent([]string{"first-secret\n", "second-secret\r\n"})
	if err != nil {
		t.Fatal(err)
	}
	made := spec.(*Service)
	for user, want := range map[string]string{"a": "first-secret", "b": "second-secret"} {
		if got, ok := made.MySQL.Password(user); !ok || got != want {
			t.Errorf("the password of %s is %q, %t; want %q", user, got, ok, want)
		}
	}
	if _, ok := made.MySQL.Password("c"); ok {
		t.Error("a user that is not listed has a password")
	}
	if _, ok := s.MySQL.Password("a"); ok {
		t.Error("the original has changed")
	}
	if (Kind{New: func() Spec { return new(Service) }}).HasSecrets() {
		t.Error("Services would be sealed in the cluster's log, which nodes of the release before cannot read")
	}
	for _, verb := range []string{"%v", "%+v", "%#v", "%q", "%x", "%d"} {
		if text := fmt.Sprintf(verb, made.MySQL) + fmt.Sprintf(verb, &made.MySQL.Credentials[0]); strings.Contains(text, "secret") ||
			strings.Contains(text, fmt.Sprintf("%x", "secret")) {
			t.Errorf("%s shows %s", verb, text)
		}
	}
}
