// Package trust says who is who: the cluster's CA, the nodes' certificates,
// tokens, and what is sealed with the cluster's key. It opens no socket and
// knows no store; of the disk it touches only a node's own files (folder.go).
//
// Whatever holds a secret (Identity, CA, Keyring, Token, TokenRecord) prints
// as what it is, never as what it holds, whatever the verb or the encoder. It
// has one method that gives the secret away, and that is named for it: Reveal
// or Marshal.
//
// Identities, CAs, keyrings and tokens are values that do not change: what
// renews or rotates gives a new one. So they can be handed to anyone, and the
// TLS configurations ask for the identity in force at each handshake.
//
//	ca, err := trust.NewCA(trust.NewClusterID(), time.Now())
//	id, err := trust.NewIdentity("edge-1")
//	request, err := id.Request()                     // to a member, over JoinConfig and Prove
//	r, err := trust.CheckRequest(request)            // there
//	leaf, err := ca.Issue(r.Public, r.NodeID, r.Name, time.Now())
//	id, err = id.Join(ca.ClusterID(), leaf, ca.Bundle(), ring)
//	err = id.Save(dir)
//	server := trust.ServerConfig(current.Load)       // an atomic.Pointer[trust.Identity]
//
// Clocks may be an hour apart: a certificate is valid from two hours before it
// was made, and whether a token has expired is judged by the clock of the node
// that is asked, nobody else's.
package trust
