package main

func measureLarge(e *env) error    { return nil }
func measureFailover(e *env) error { return nil }
func measureWide(e *env) error     { return nil }
func measureDataPath(e *env) error { return nil }
func measureIdle(e *env) error     { return nil }
