// Package trust implements identity: the cluster's CA, the certificates of nodes
// and proxies, tokens, and values sealed with the cluster's key. It opens no
// socket and uses no store; on disk it touches only a node's own files
// (folder.go).
//
// Types that hold a secret (Identity, CA, Keyring, Token, TokenRecord) print a
// description and never the secret, whatever the verb or the encoder. Only the
// methods Reveal and Marshal return a secret as text.
//
// Identities, CAs, keyrings and tokens are immutable: a renewal or rotation
// returns a new value. So they can be shared freely, and the TLS configurations
// load the current identity at each handshake.
//
//	ca, err := trust.NewCA(trust.NewClusterID(), "", time.Now())
//	id, err := trust.NewIdentity("edge-1")
//	request, err := id.Request()                     // to a member, over JoinConfig and Prove
//	r, err := trust.CheckRequest(request)            // on the member
//	leaf, err := ca.Issue(r.Public, r.NodeID, r.Name, time.Now())
//	id, err = id.Join(ca.ClusterID(), leaf, ca.Bundle(), ring)
//	err = id.Save(dir)
//	server := trust.ServerConfig(current.Load)       // an atomic.Pointer[trust.Identity]
//
// Clocks may be as far apart as time zones are: a certificate is valid from 26
// hours before it was issued. The expiry of a token is checked only against the
// clock of the node that verifies it.
package trust
