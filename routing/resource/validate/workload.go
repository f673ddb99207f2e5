package validate

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"penstock/routing/resource"
)

const (
	// maxWorkloadID bounds a SPIFFE ID, which every node keeps, in bytes.
	maxWorkloadID = 512
	// maxWorkloadDNS bounds the DNS names of a certificate.
	maxWorkloadDNS = 16
	// maxHint is in bytes.
	maxHint = 253
	// overflowID is what the kernel gives for users and groups of other user
	// namespaces, all the same, and for nobody.
	overflowID = 65534
)

// validateWorkload reports the faults of a workload identity alone.
func validateWorkload(w *resource.WorkloadIdentity, fault Report) {
	Fields(w, fault)
	if message := workloadIDFault(w.SPIFFE); message != "" {
		fault("spiffe", message, orNil(w.SPIFFE))
	}
	checkWorkloadDNS("dns", w.DNS, fault)
	if len(w.Hint) > maxHint {
		fault("hint", fmt.Sprintf("must have at most %d bytes", maxHint), nil)
	}
	checkTrustDomains("federatesWith", w.FederatesWith, fault)
	if i := slices.Index(w.FederatesWith, resource.OwnTrustDomain); i >= 0 {
		fault(resource.Item("federatesWith", i), "is the cluster's own trust domain, whose bundle every program gets: leave it out", nil)
	}
	unix := &w.Selectors.Unix
	if len(unix.UID)+len(unix.GID) == 0 && !w.Selectors.Token {
		fault("selectors.unix", "requires uid or gid, or token beside it: without one every program on the machine would have the identity", nil)
	}
	checkUnixIDs("selectors.unix.uid", unix.UID, fault)
	checkUnixIDs("selectors.unix.gid", unix.GID, fault)
}

// checkWorkloadDNS reports the faults in the DNS names of a workload's certificate.
func checkWorkloadDNS(path string, names []string, fault Report) {
	checkCount(path, len(names), maxWorkloadDNS, fault)
	for i, name := range names {
		if message := dnsFault(name); message != "" {
			fault(resource.Item(path, i), message, orNil(name))
		}
	}
	checkDuplicates(path, names, fault)
}

// workloadIDFault returns what is wrong with the ID of a workload, or with its path.
func workloadIDFault(text string) string {
	if text == "" {
		return "is required: a path such as /ns/shop/web"
	}
	full := text
	if strings.HasPrefix(text, "/") {
		full = "spiffe://cluster" + text
	}
	id, err := resource.ParseSPIFFEID(full)
	switch first, _, _ := strings.Cut(strings.TrimPrefix(id.Path, "/"), "/"); {
	case err != nil:
		return err.Error()
	case len(text) > maxWorkloadID:
		return fmt.Sprintf("must have at most %d bytes", maxWorkloadID)
	case id.Path == "":
		return "has no path, such as /ns/shop/web: without one it is the trust domain's own ID"
	case slices.Contains(resource.ReservedPaths, first):
		return fmt.Sprintf("begins with /%s, which belongs to the cluster itself", first)
	}
	return ""
}

func checkUnixIDs(path string, ids []int, fault Report) {
	checkCount(path, len(ids), maxVerified, fault)
	for i, id := range ids {
		switch {
		case id < 0 || int64(id) >= math.MaxUint32:
			fault(resource.Item(path, i), fmt.Sprintf("must be from 0 to %d", int64(math.MaxUint32-1)), id)
		case id == overflowID:
			fault(resource.Item(path, i), "stands for everyone of another user namespace as well, such as that of a container: use another one", id)
		case slices.Contains(ids[:i], id):
			fault(resource.Item(path, i), "is a duplicate", id)
		}
	}
}
