package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"

	"penstock/node/api"
)

func preStopCommand(t *target) *cobra.Command {
	var set string
	var wait time.Duration
	cmd := &cobra.Command{
		Use:   "pre-stop",
		Short: "Prepare the node of a pod for its end; the pod's preStop hook",
		Long: "If the StatefulSet was scaled down to fewer pods than this one's ordinal, the node leaves its cluster for good. Otherwise " +
			"the pod comes back: the command waits until the other voters have a majority, and SIGTERM then drains the node. A set " +
			"that is deleted or scaled to 0, or that the API server does not show, counts as one that comes back.",
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			namespace, pod, err := podName()
			if err != nil || set == "" || wait < 0 {
				return usagef("--statefulset %q, --wait %v: %v", set, wait, err)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), wait)
			defer cancel()
			spec, err := readStatefulSet(cmd.Context(), namespace, set)
			if err != nil {
				fmt.Fprintf(cmd.ErrOrStderr(), "cannot tell whether the set is scaled down, so the node stays a member: %v\n", err)
			}
			if err == nil && spec.drops(set, pod) {
				return t.leaveBeforeStop(ctx, cmd)
			}
			t.awaitSpare(ctx, cmd)
			return nil
		},
	}
	cmd.Flags().StringVar(&set, "statefulset", "", "name of the pod's StatefulSet")
	cmd.Flags().DurationVar(&wait, "wait", 10*time.Minute, "how long to wait at most")
	return cmd
}

// statefulSet is what is read of a StatefulSet (apps/v1).
type statefulSet struct {
	Metadata struct {
		DeletionTimestamp *string `json:"deletionTimestamp"`
	} `json:"metadata"`
	Spec struct {
		Replicas *int `json:"replicas"`
		Ordinals *struct {
			Start int `json:"start"`
		} `json:"ordinals"`
	} `json:"spec"`
}

// drops reports whether the set no longer has the pod. It is false if the set ends as a
// whole, since all its pods may come back with their volumes.
func (s *statefulSet) drops(set, pod string) bool {
	ordinal, err := strconv.Atoi(strings.TrimPrefix(pod, set+"-"))
	if err != nil || s.Metadata.DeletionTimestamp != nil || s.Spec.Replicas == nil || *s.Spec.Replicas == 0 {
		return false
	}
	first := 0
	if s.Spec.Ordinals != nil {
		first = s.Spec.Ordinals.Start
	}
	return ordinal < first || ordinal >= first+*s.Spec.Replicas
}

// maxStatefulSet bounds the answer of the API server, in bytes.
const maxStatefulSet = 4 << 20

// readStatefulSet reads a StatefulSet as the pod's service account.
func readStatefulSet(ctx context.Context, namespace, name string) (*statefulSet, error) {
	cfg, err := rest.InClusterConfig()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	url := cfg.Host + "/apis/apps/v1/namespaces/" + namespace + "/statefulsets/" + name
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	response, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("GET %s: %s", url, response.Status)
	}
	var s statefulSet
	return &s, json.NewDecoder(io.LimitReader(response.Body, maxStatefulSet)).Decode(&s)
}

// pollBeforeStop is the interval at which a pod that ends asks its node.
const pollBeforeStop = time.Second

// leaveBeforeStop has the node leave, and tries again while the others cannot spare it.
// The process of the node ends when it has left.
func (t *target) leaveBeforeStop(ctx context.Context, cmd *cobra.Command) error {
	for {
		r, err := ask[api.LeaveResult](cmd, t, api.MethodLeave, api.LeaveRequest{})
		if err == nil {
			left := 10 * time.Minute
			if end, ok := ctx.Deadline(); ok {
				left = max(time.Minute, time.Until(end))
			}
			err = t.awaitLeft(cmd, leaveAttempt{r.Node, r.ID, true, r.Connections}, left)
		}
		var refusal *api.Error
		if err == nil || errors.As(err, &refusal) && refusal.Code == api.Unavailable && r == nil {
			return nil // left, or in no cluster yet
		}
		select {
		case <-time.After(pollBeforeStop):
		case <-ctx.Done():
			return err
		}
	}
}

// awaitSpare waits until the voters have a majority without this node.
func (t *target) awaitSpare(ctx context.Context, cmd *cobra.Command) {
	_, self, err := podName()
	for err == nil {
		r, asked := ask[api.Members](cmd, t, api.MethodMembers, api.Empty{})
		if asked != nil || spares(*r, self) {
			return
		}
		select {
		case <-time.After(pollBeforeStop):
		case <-ctx.Done():
			return
		}
	}
}

// spares reports whether the end of a node takes no majority: the other voters have one,
// or there is none with it either, or there are too few voters to ever spare one.
func spares(members api.Members, name string) bool {
	voters, others, own := 0, 0, 0
	for _, m := range members {
		switch up := m.State == "serving" || m.State == "drained"; {
		case m.Role != "leader" && m.Role != "voter":
			continue
		case m.Name == name:
			own = 1
		case up:
			others++
		}
		voters++
	}
	majority := voters/2 + 1
	return own == 0 || voters < 3 || others >= majority || others+own < majority
}
