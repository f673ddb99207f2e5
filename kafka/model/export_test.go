package model

// Golden compares with a file, or writes it under -update.
var Golden = golden
