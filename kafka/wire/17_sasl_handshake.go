package wire

// SaslHandshake (API key 17) names the SASL mechanism.
//
//	request   v0     neither offered nor carried: the tokens that follow are not
//	                 framed, so they cannot be distinguished from requests
//	          v1+    passed (KIP-152); the session records the mechanism
//	                 (session/auth.go)
//	response  v1+    passed
//
// A broker that supports only v0 (before Kafka 1.0) is not offered for SASL.
var saslHandshake = apiSpec{key: keySASLHandshake, lowest: 1, addressesFrom: noVersion}
