package resource

// RolloutsEnded lists the Rollouts of the set that the changes end: those of
// routes that are deleted, created, or get another rollout. The caller must
// delete them in the same change: if one were kept, it would apply to a route
// that comes back with the same rollout.
func (s *Set) RolloutsEnded(changes []Change) (ended []Key) {
	seen := map[Key]bool{} // a route that is changed twice is reported elsewhere
	for i := range changes {
		ch := &changes[i]
		if ch.Kind != "MeshTCPRoute" {
			continue
		}
		key := Key{KindRollout, ch.Name}
		noted, _ := s.Get(key)
		state, ok := noted.Spec.(*Rollout)
		if !ok || seen[key] {
			continue
		}
		before, _ := s.Get(ch.Key)
		was, is := rolloutOf(before.Spec), ""
		if !ch.Delete {
			is = rolloutOf(ch.Spec)
		}
		if was != is || state.Of != is {
			seen[key] = true
			ended = append(ended, key)
		}
	}
	return ended
}

// rolloutOf returns the RolloutOf of a spec; "" if it is not a route.
func rolloutOf(s Spec) string {
	if r, ok := s.(*MeshTCPRoute); ok && r != nil {
		return r.RolloutOf()
	}
	return ""
}
