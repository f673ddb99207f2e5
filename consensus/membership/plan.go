package membership

// Plan says what to do about what the leader sees: the most urgent first, at
// most one change of the voters among them. It is asked again whenever
// something has changed, and once a second.
func Plan(o Observed) []Action { return nil }
