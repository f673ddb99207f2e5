package process

import "flag"

// AtOnce has that many tests of a package run at the same time, unless
// -parallel says how many: tests of processes wait most of their time, so more
// of them fit than there are cores. TestMain calls it before it runs tests.
func AtOnce(tests string) error {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if given {
		return nil
	}
	return flag.Set("test.parallel", tests)
}
