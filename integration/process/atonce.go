package process

import "flag"

// AtOnce sets the default of -parallel for a package whose tests mostly wait
// for processes, so that more of them can run at once than there are cores.
// TestMain calls it before it runs the tests.
func AtOnce(tests string) error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", tests)
}
