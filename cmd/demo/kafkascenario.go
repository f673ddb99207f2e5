package demo

import (
	"context"
	"crypto/rand"
	"fmt"
	"strconv"
	"time"

	"penstock/node/api"
	"penstock/routing/resource"
)

// changeTenants repeatedly adds a tenant, uses it, changes another one, and
// removes the first.
func (s *scenario) changeTenants(ctx context.Context, k *kafkaTraffic) {
	frontPort, _ := strconv.Atoi(portText(s.cluster.kafka))
	for round := 1; ; round++ {
		if pause(ctx, 2*time.Second); ctx.Err() != nil {
			return
		}
		began := time.Now()
		if err := s.addTenant(ctx, k, frontPort, round); err != nil {
			s.failTenant(ctx, "tenant "+extraTenant, err)
			continue
		}
		s.update(func() { s.tenants++ })
		s.event("tenant %s is added; a record is produced and consumed: %s", extraTenant, seconds(time.Since(began)))
		if pause(ctx, time.Second); ctx.Err() != nil {
			return
		}
		if _, _, _, err := s.apply(ctx, tenant("red", frontPort, round)); err != nil {
			s.failTenant(ctx, "tenant red", err)
			continue
		}
		s.event("tenant red is changed: its maxFrame is now %d MiB", 16+round%16)
		if err := s.remove(ctx, resource.Key{Kind: "VirtualCluster", Name: extraTenant}); err != nil {
			s.failTenant(ctx, "tenant "+extraTenant, err)
			continue
		}
		s.event("tenant %s is removed", extraTenant)
	}
}

func (s *scenario) failTenant(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		s.event("%s: %v", what, err)
	}
}

func (s *scenario) addTenant(ctx context.Context, k *kafkaTraffic, frontPort, round int) error {
	cert, err := s.fixtures.issue("*" + suffix(extraTenant))
	if err != nil {
		return err
	}
	if _, _, _, err := s.apply(ctx, cert.resource(extraTenant+"-tls")+"---\n"+tenant(extraTenant, frontPort, round)); err != nil {
		return err
	}
	return k.useTenant(ctx, extraTenant)
}

// remove deletes a resource through a running node, and retries while there is
// no leader.
func (s *scenario) remove(ctx context.Context, key resource.Key) error {
	req := api.DeleteRequest{ID: make([]byte, 16), Kind: key.Kind, Name: key.Name, Wait: api.Wait{For: time.Second}}
	_, _ = rand.Read(req.ID) // crypto/rand never fails
	for deadline := time.Now().Add(conditionTimeout); ; {
		_, err := request[api.DeleteResult](ctx, s.cluster.randomNode(), api.MethodDelete, req)
		if err == nil || ctx.Err() != nil || time.Now().After(deadline) || refused(err) {
			return err
		}
		pause(ctx, 100*time.Millisecond)
	}
}

// summaryLine formats the counters of the Kafka clients.
func (k *kafkaTraffic) summaryLine() string {
	return fmt.Sprintf("kafka: %d records produced, %d consumed, %d lost, duplicated or out of order; connections: %d lost with "+
		"their node, %d broken",
		k.produced.Load(), k.consumed.Load(), k.misplaced.Load(), k.lostWithNode.Load(), k.broken.Load())
}
