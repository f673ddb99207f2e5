package resource

// Change puts an object in place of any with the same key, or deletes it.
type Change struct {
	Object
	Delete bool // Object gives the key only
}

// Put returns the change that puts o.
func Put(o Object) Change { return Change{Object: o} }

// Delete returns the change that deletes the object with that key.
func Delete(k Key) Change { return Change{Object: Object{Key: k}, Delete: true} }
