package acme

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"penstock/internal/testkit"
	"penstock/routing/resource"
)

// Wherever a directory or a redirect leads, only TLS is followed, except at a
// loopback address; and an answer is bounded.
func TestRequestsLeaveByTLSAlone(t *testing.T) {
	addr := testkit.ServeHTTP(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/redirect" {
			http.Redirect(w, r, "http://192.0.2.1/", http.StatusFound)
			return
		}
		for range 3 {
			_, _ = io.WriteString(w, strings.Repeat("x", maxBody/2))
		}
	})
	client, done, err := newClient(&resource.ACME{Directory: "http://" + addr}, nil, "", "test")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	for _, url := range []string{"http://192.0.2.1/", "http://localhost/", "http://" + addr + "/redirect", "ftp://127.0.0.1/", "http:///x"} {
		res, err := client.HTTPClient.Get(url)
		if err == nil {
			res.Body.Close()
		}
		if !errors.Is(err, errUnsafeURL) && (err == nil || strings.HasPrefix(url, "http://1")) {
			t.Errorf("%s: %v", url, err)
		}
	}
	res, err := client.HTTPClient.Get("http://" + addr + "/")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	if n, _ := io.Copy(io.Discard, res.Body); n != maxBody {
		t.Errorf("%d bytes are read, want %d", n, maxBody)
	}
}

func TestRequestsAreRepeatedABoundedNumberOfTimes(t *testing.T) {
	fault, limited := &http.Response{StatusCode: http.StatusInternalServerError}, &http.Response{StatusCode: http.StatusTooManyRequests}
	for n := 1; n <= maxRequestRetries; n++ {
		if d := backoff(n, nil, fault); d <= 0 {
			t.Errorf("retry %d is not made", n)
		}
	}
	if backoff(maxRequestRetries+1, nil, fault) != 0 || backoff(1, nil, limited) != 0 {
		t.Error("requests are repeated for ever, or against the authority's limit")
	}
}

// A directory with TLS cannot lead to a service of this machine without it.
func TestDirectoriesWithTLSLeadNowhereWithoutIt(t *testing.T) {
	client, done, err := newClient(&resource.ACME{Directory: "https://ca.example/directory"}, nil, "", "test")
	if err != nil {
		t.Fatal(err)
	}
	defer done()
	res, err := client.HTTPClient.Get("http://127.0.0.1:1/")
	if err == nil {
		res.Body.Close()
	}
	if !errors.Is(err, errUnsafeURL) {
		t.Errorf("%v, want %v", err, errUnsafeURL)
	}
}
