package kubernetes

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"

	"penstock/routing/kubeapi"
	"penstock/routing/provider"
)

const (
	benchSlices    = 10_000
	benchEndpoints = 10 // of each slice
)

// recorded returns a slice with all the fields that a cluster's controller
// writes, as an API server returns it.
func recorded(n int) discoveryv1.EndpointSlice {
	name := fmt.Sprintf("shop-frontend-%d", n)
	labels := map[string]string{
		discoveryv1.LabelServiceName: name, "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
		"app.kubernetes.io/name": name, "app.kubernetes.io/instance": "production", "app.kubernetes.io/managed-by": "Helm",
	}
	s := discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: name + "-x7k2p", GenerateName: name + "-", Labels: labels, Generation: 12,
			UID: types.UID(fmt.Sprintf("6d2f3a44-0000-4000-8000-%012d", n)), ResourceVersion: strconv.Itoa(1000 + n),
			CreationTimestamp: metav1.NewTime(time.Unix(1_700_000_000, 0)),
			Annotations:       map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-01T00:00:00Z"},
			OwnerReferences:   []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: name, UID: types.UID(name), Controller: to(true)}},
			ManagedFields: []metav1.ManagedFieldsEntry{{
				Manager: "kube-controller-manager", Operation: "Update", APIVersion: "discovery.k8s.io/v1", FieldsType: "FieldsV1",
				FieldsV1: &metav1.FieldsV1{Raw: []byte(`{"f:metadata":{` + strings.Repeat(`"f:labels":{".":{}},`, 30) + `"f:name":{}}}`)},
			}},
		},
		AddressType: discoveryv1.AddressTypeIPv4,
		Ports:       []discoveryv1.EndpointPort{{Name: to("http"), Port: to(int32(8080)), Protocol: to(corev1.ProtocolTCP)}},
	}
	for i := range benchEndpoints {
		pod := fmt.Sprintf("%s-7d9c5b6f4-%05d", name, i)
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses:  []string{fmt.Sprintf("10.%d.%d.%d", n/250%250, n%250, i+1)},
			Conditions: discoveryv1.EndpointConditions{Ready: to(true), Serving: to(true), Terminating: to(false)},
			NodeName:   to(fmt.Sprintf("ip-10-0-%d-%d.eu-central-1.compute.internal", i, n%200)),
			Zone:       to("eu-central-1" + string(rune('a'+i%3))),
			TargetRef: &corev1.ObjectReference{
				Kind: "Pod", Namespace: "shop", Name: pod, UID: types.UID(fmt.Sprintf("6d2f3a44-0000-4000-8000-%012d", n*100+i)),
			},
		})
	}
	return s
}

// pagesOf returns the pages of a list of slices in an encoding.
func pagesOf(b *testing.B, mediaType string) (pages [][]byte, bytes int) {
	info, ok := kruntime.SerializerInfoForMediaType(codecs.SupportedMediaTypes(), mediaType)
	if !ok {
		b.Fatal(mediaType)
	}
	encoder := codecs.EncoderForVersion(info.Serializer, discoveryv1.SchemeGroupVersion)
	for from := 0; from < benchSlices; from += kubeapi.PageSize {
		list := discoveryv1.EndpointSliceList{ListMeta: metav1.ListMeta{ResourceVersion: "99999"}}
		for n := from; n < min(from+kubeapi.PageSize, benchSlices); n++ {
			list.Items = append(list.Items, recorded(n))
		}
		if from+kubeapi.PageSize < benchSlices {
			list.Continue = strconv.Itoa(len(pages) + 1)
		}
		page, err := kruntime.Encode(encoder, &list)
		if err != nil {
			b.Fatal(err)
		}
		pages, bytes = append(pages, page), bytes+len(page)
	}
	return pages, bytes
}

// BenchmarkRelist lists 10,000 slices of 10 endpoints each, 250 an answer, from a
// server in this process. B/op is all that is allocated on the way, with the
// server's part; live-MB is what stays.
func BenchmarkRelist(b *testing.B) {
	for _, mediaType := range []string{kruntime.ContentTypeProtobuf, kruntime.ContentTypeJSON} {
		b.Run(mediaType, func(b *testing.B) {
			pages, bytes := pagesOf(b, mediaType)
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				n, _ := strconv.Atoi(r.URL.Query().Get("continue"))
				w.Header().Set("Content-Type", mediaType)
				_, _ = w.Write(pages[n])
			}))
			defer server.Close()
			f, updates := benchFollower(b, server.URL)
			var catalog catalog
			b.ReportAllocs()
			var peak uint64
			before := liveBytes()
			for b.Loop() {
				if _, err := f.List(b.Context()); err != nil {
					b.Fatal(err)
				}
				catalog = newCatalog()
				catalog.replace(endpointSlices, (<-updates).Objects)
			}
			peak = max(peak, liveBytes()-before)
			if len(catalog.slices) != benchSlices {
				b.Fatalf("%d slices", len(catalog.slices))
			}
			b.ReportMetric(float64(peak)/1e6, "live-MB")
			b.ReportMetric(float64(bytes)/1e6, "wire-MB")
			runtime.KeepAlive(f)
		})
	}
}

func liveBytes() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func benchFollower(b *testing.B, url string) (*following, <-chan update) {
	path := filepath.Join(b.TempDir(), "kubeconfig")
	writeKubeconfig(b, path, "server: "+url, "token: x")
	source, err := New(Config{Kubeconfig: path, Rate: maxRate})
	if err != nil {
		b.Fatal(err)
	}
	client, err := source.connect()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(client.Close)
	updates := make(chan update, 1)
	return source.follow(client, endpointSlices, "shop", updates), updates
}

// BenchmarkOneOfTenThousandChanges reports a service with 10,000 endpoints in 100
// slices of which one changed.
func BenchmarkOneOfTenThousandChanges(b *testing.B) {
	c := newCatalog()
	web, err := newService(aService("web", "http:80"))
	if err != nil {
		b.Fatal(err)
	}
	c.put(services, web, map[key]bool{})
	slice := func(n int, ready bool) object {
		var addresses []string
		for i := range 100 {
			addresses = append(addresses, fmt.Sprintf("10.0.%d.%d", n, i+1))
		}
		s := aSlice(fmt.Sprintf("web-%d", n), addresses...)
		for i := range s.Endpoints {
			s.Endpoints[i].Zone, s.Endpoints[i].NodeName = to("zone-a"), to("node-1")
		}
		s.Endpoints[0].Conditions.Ready = &ready
		o, err := newSlice(s, BothFamilies)
		if err != nil {
			b.Fatal(err)
		}
		return o
	}
	for n := range 100 {
		c.put(endpointSlices, slice(n, true), map[key]bool{})
	}
	changing := [2]object{slice(0, false), slice(0, true)}
	var list []provider.Endpoint
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		o := changing[i%2]
		fresh := *o.slice
		fresh.built, o.slice = nil, &fresh
		c.put(endpointSlices, o, map[key]bool{})
		if list, err = c.endpoints(key{"shop", "web"}, ""); err != nil {
			b.Fatal(err)
		}
	}
	if len(list) != 10_000 {
		b.Fatalf("%d endpoints", len(list))
	}
}
