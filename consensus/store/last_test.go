package store

import "testing"

func TestLastIsTheLastEntryOfItsKind(t *testing.T) {
	var v Snapshot
	if e, ok := v.Last("a"); ok {
		t.Fatalf("an empty store has %v", e.Key)
	}
	var ops []Op
	for _, k := range []Key{{"a", "1"}, {"a", "3"}, {"a", "2"}, {"ab", "9"}, {"b", "0"}} {
		ops = append(ops, Op{Key: k, Value: []byte(k.Name)})
	}
	v, _, err := v.Apply(1, &Batch{Ops: ops}, Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for kind, want := range map[string]string{"a": "3", "ab": "9", "b": "0", "": "", "aa": "", "c": ""} {
		if e, ok := v.Last(kind); e.Name != want || ok != (want != "") || ok && e.Kind != kind {
			t.Errorf("the last of %q is %v", kind, e.Key)
		}
	}
}
