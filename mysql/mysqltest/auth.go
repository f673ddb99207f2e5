package mysqltest

import (
	"bytes"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"sync"

	"penstock/mysql/wire"
)

// The plugins.
const (
	nativePlugin = "mysql_native_password"
	sha2Plugin   = "caching_sha2_password"
)

// Turns of caching_sha2_password.
const (
	sha2Fast   = 3 // the cached password matched
	sha2Full   = 4 // the client has to send the password itself
	sha2KeyAsk = 2 // the client asks for the public key
)

// connect greets the client and logs it in.
func (c *conn) connect() error {
	var err error
	if c.source, err = c.server.source(c.in); err != nil {
		return err
	}
	if _, replaced, err := c.step(Event{Step: OnConnect}); err != nil {
		return err
	} else if !replaced {
		config := &c.server.config
		c.write(wire.AppendGreeting(nil, &wire.Greeting{
			ServerVersion: config.Version, ConnectionID: c.id, Salt: c.salt, Capabilities: config.Capabilities,
			Collation: 46, Status: wire.Autocommit, Plugin: config.Plugin,
		}))
		if err := c.flush(); err != nil {
			return err
		}
	}
	payload, err := c.read()
	if err != nil {
		return err
	}
	if _, isTLS, err := wire.ParseSSLRequest(payload); err != nil {
		return err
	} else if isTLS && c.server.config.TLS != nil {
		if _, replaced, err := c.step(Event{Step: OnTLS, Payload: payload}); replaced || err != nil {
			return errEnded
		}
		if err := c.upgrade(); err != nil {
			return err
		}
		if payload, err = c.read(); err != nil {
			return err
		}
	}
	if c.login, err = wire.ParseLogin(payload); err != nil {
		c.writeError(&wire.Error{Code: 1043, State: "08S01", Message: "Bad handshake: " + err.Error()})
		return errors.Join(err, c.flush())
	}
	c.caps, c.user = c.login.Capabilities&c.server.config.Capabilities, c.login.User
	if _, replaced, err := c.step(Event{Step: OnLogin, Payload: payload}); replaced || err != nil {
		return errEnded
	}
	if err := c.authenticate(false); err != nil {
		return err
	}
	c.compress()
	return nil
}

// authenticate decides about c.login and answers. An error ends the connection.
func (c *conn) authenticate(changeUser bool) error {
	_, isTLS := c.net.(*tls.Conn)
	seen := LoginSeen{
		Conn: c.id, Login: c.login, ChangeUser: changeUser, TLS: isTLS, ServerName: c.serverName, Source: c.source,
	}
	ok, err := c.verify(&seen.Plugin)
	if err != nil {
		return err
	}
	seen.OK = ok
	c.server.sawLogin(seen)
	if _, replaced, err := c.step(Event{Step: OnVerdict}); replaced || err != nil {
		return err
	}
	if !ok {
		using := "YES"
		if len(c.login.Auth) == 0 {
			using = "NO"
		}
		c.writeError(&wire.Error{
			Code: 1045, State: "28000",
			Message: fmt.Sprintf("Access denied for user '%s'@'127.0.0.1' (using password: %s)", c.login.User, using),
		})
		return errors.Join(errEnded, c.flush())
	}
	c.user, c.db = c.login.User, c.login.Database
	c.writeOK(&wire.OK{Status: c.status()})
	return c.flush()
}

// verify reports whether the client is who c.login says.
func (c *conn) verify(decides *string) (bool, error) {
	config := &c.server.config
	if *decides = c.login.Plugin; c.login.Plugin == wire.TokenPlugin {
		if _, replaced, err := c.step(Event{Step: OnToken, Payload: c.login.Auth}); replaced || err != nil {
			return false, errEnded
		}
		return config.Signer.valid(c.login.Auth, c.login.User, config.Now()), nil
	}
	user, known := config.Users[c.login.User]
	if user.Plugin == "" {
		user.Plugin = nativePlugin
	}
	auth := c.login.Auth
	if c.login.Plugin != user.Plugin {
		c.salt = newSalt()
		c.write(wire.AppendAuthSwitch(nil, &wire.AuthSwitch{Plugin: user.Plugin, Data: append(c.salt[:], 0)}))
		var err error
		if auth, err = c.turn(); err != nil {
			return false, err
		}
	}
	*decides = user.Plugin
	switch user.Plugin {
	case nativePlugin:
		return known && matches(auth, nativeProof(c.salt, user.Password)), nil
	case sha2Plugin:
		ok, err := c.sha2(auth, user.Password)
		return known && ok, err
	}
	// An opaque plugin: its data is the password, with a NUL or without.
	return known && matches(bytes.TrimSuffix(auth, []byte{0}), []byte(user.Password)), nil
}

// turn sends what has been written and reads the client's turn.
func (c *conn) turn() ([]byte, error) {
	if err := c.flush(); err != nil {
		return nil, err
	}
	p, err := c.read()
	if err != nil {
		return nil, err
	}
	if _, replaced, err := c.step(Event{Step: OnAuth, Payload: p}); replaced || err != nil {
		return nil, errEnded
	}
	return p, nil
}

// sha2 runs caching_sha2_password, fast where the user's password is cached.
func (c *conn) sha2(auth []byte, password string) (bool, error) {
	if password == "" || len(auth) == 0 {
		return password == "" && len(auth) == 0, nil
	}
	s := c.server
	s.mu.Lock()
	cached := s.cached[c.login.User]
	s.mu.Unlock()
	if cached && matches(auth, sha2Proof(c.salt, password)) {
		c.write([]byte{1, sha2Fast})
		return true, nil
	}
	c.write([]byte{1, sha2Full})
	answer, err := c.turn()
	if err != nil {
		return false, err
	}
	if _, isTLS := c.net.(*tls.Conn); !isTLS {
		if len(answer) != 1 || answer[0] != sha2KeyAsk {
			return false, nil
		}
		c.write(append([]byte{1}, s.keys.public()...))
		if answer, err = c.turn(); err != nil {
			return false, err
		}
		if answer, err = rsa.DecryptOAEP(sha1.New(), nil, s.keys.get(), answer, nil); err != nil {
			return false, nil //nolint:nilerr // a wrong password
		}
		for i := range answer {
			answer[i] ^= c.salt[i%len(c.salt)]
		}
	}
	ok := matches(answer, append([]byte(password), 0))
	if ok {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.cached[c.login.User] = true
	}
	return ok, nil
}

// ForgetPasswords empties the cache of caching_sha2_password.
func (s *Server) ForgetPasswords() {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.cached)
}

func matches(a, b []byte) bool { return subtle.ConstantTimeCompare(a, b) == 1 }

// nativeProof is SHA1(password) XOR SHA1(salt, SHA1(SHA1(password))).
func nativeProof(salt [20]byte, password string) []byte {
	if password == "" {
		return nil
	}
	once := sha1.Sum([]byte(password))
	twice := sha1.Sum(once[:])
	mask := sha1.Sum(append(salt[:], twice[:]...))
	subtle.XORBytes(mask[:], mask[:], once[:])
	return mask[:]
}

// sha2Proof is SHA256(password) XOR SHA256(SHA256(SHA256(password)), salt).
func sha2Proof(salt [20]byte, password string) []byte {
	once := sha256.Sum256([]byte(password))
	twice := sha256.Sum256(once[:])
	mask := sha256.Sum256(append(twice[:], salt[:]...))
	subtle.XORBytes(mask[:], mask[:], once[:])
	return mask[:]
}

// rsaKeys is the key of caching_sha2_password without TLS, made when it is needed.
type rsaKeys struct {
	once sync.Once
	key  *rsa.PrivateKey
}

func (k *rsaKeys) get() *rsa.PrivateKey {
	k.once.Do(func() {
		var err error
		if k.key, err = rsa.GenerateKey(rand.Reader, 2048); err != nil {
			panic(err)
		}
	})
	return k.key
}

func (k *rsaKeys) public() []byte {
	der, err := x509.MarshalPKIXPublicKey(&k.get().PublicKey)
	if err != nil {
		panic(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})
}
