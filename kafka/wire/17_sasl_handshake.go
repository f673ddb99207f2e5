package wire

// SaslHandshake (API key 17) names the SASL mechanism.
//
//	request   v0     neither offered nor carried: the tokens that follow have no
//	                 frame around them, so nobody could tell them from requests
//	          v1+    passed (KIP-152); the session notes the mechanism
//	                 (session/auth.go)
//	response  v1+    passed
//
// A broker that knows v0 alone (before Kafka 1.0) is not offered for SASL.
var saslHandshake = apiSpec{key: keySASLHandshake, lowest: 1, addressesFrom: noVersion}
