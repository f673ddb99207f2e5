package kinds

import (
	"fmt"
	"testing"

	"penstock/node/cluster/record"
	"penstock/routing/resource/codec"
)

// Fields that the previous release does not support require a level of their own.
func TestHTTPFieldsRequireFeatureLevel(t *testing.T) {
	t.Parallel()
	const listener, service = "kind: Listener\nname: a\nspec: {address: \":1\", service: a%s}\n",
		"kind: Service\nname: a\nspec: {protocol: http%s}\n"
	for text, want := range map[string]int{
		fmt.Sprintf(listener, ""): 0, fmt.Sprintf(listener, ", http: {underscores: allow}"): record.LevelRequests,
		fmt.Sprintf(service, ""): 0, fmt.Sprintf(service, ", http: {timeout: 1s}"): record.LevelPolicies,
		fmt.Sprintf(service, ", http: {upgrades: [websocket]}"): record.LevelRequests,
		fmt.Sprintf(service, ", discovery: {}"):                 record.LevelProviders, fmt.Sprintf(service, ", endpointsFrom: [{provider: a}]"): record.LevelProviders,
	} {
		objects, faults := codec.Decode("test.yaml", []byte(text), All())
		if len(faults) > 0 {
			t.Fatal(faults)
		}
		if got := Level(objects[0]); got != want {
			t.Errorf("%s is of level %d, want %d", text, got, want)
		}
	}
}
