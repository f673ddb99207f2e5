package ops

import (
	"slices"

	"penstock/kafka"
	"penstock/node/api"
	"penstock/routing"
)

// explainKafka explains a connection to a virtual cluster, and one of its requests if q is
// not nil.
func (d *decisions) explainKafka(in *routing.Input, q *api.KafkaRequest) (*routing.Explanation, error) {
	e := d.data.Kafka.Explain(in.Listener, in.ServerName, in.HasServerName)
	if e.Reason != routing.OK {
		return &e, nil
	}
	table := d.data.Router.Table()
	var steps []routing.Step
	permission, why := table.PermissionStep(in, e.Destination)
	if table.Restricts() {
		steps = append(steps, permission)
	}
	query := routing.LimitQuery{Input: in, Cluster: e.Destination, Now: routing.LimitClock()}
	if why == routing.OK {
		limits, reason := table.LimitSteps(&query, "")
		steps, why = append(steps, limits...), reason
	}
	if why == routing.OK && q != nil {
		asked := &kafka.Request{
			Listener: in.Listener, Client: in.Client, Identity: routing.IdentityOf(in),
			Principal: q.Principal, ClientID: q.ClientID, Operation: q.Operation, Topic: q.Topic, Group: q.Group, TransactionalID: q.TransactionalID,
		}
		asked.Tags, asked.Service = table.ClientTags(in)
		more, reason, err := d.data.Kafka.ExplainRequest(e.Destination, asked)
		if err != nil {
			return nil, api.Errorf(api.Invalid, "%v", err)
		}
		query.Kafka = &routing.KafkaClient{Principal: q.Principal, ClientID: q.ClientID}
		limits, _ := table.LimitSteps(&query, q.Topic) // they refuse nothing
		steps, why = slices.Concat(steps, more, limits), reason
	}
	// Before the step that says where the connection goes.
	e.Steps = slices.Insert(e.Steps, len(e.Steps)-1, steps...)
	if why != routing.OK {
		e.Reason, e.Endpoint = why, ""
		e.Steps = append(e.Steps[:len(e.Steps)-1], routing.Step{Name: "outcome", Looked: "decision", Result: refusal(why, q)})
	}
	return &e, nil
}

// refusal says what becomes of a client that is refused.
func refusal(why routing.Reason, q *api.KafkaRequest) string {
	if why == kafka.RequestDenied {
		return "answered with an error of authorization (" + string(why) + ")"
	}
	return "closed (" + string(why) + ")"
}
