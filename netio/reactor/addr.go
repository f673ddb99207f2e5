package reactor

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"
)

// sockaddr is an address as the kernel takes it.
type sockaddr struct {
	raw syscall.RawSockaddrAny
	len uint32
}

func (a *sockaddr) family() uint16 { return a.raw.Addr.Family }

// setTCP takes an IPv4, an IPv4-mapped or an IPv6 address.
func (a *sockaddr) setTCP(ap netip.AddrPort) error {
	ip := ap.Addr().Unmap()
	switch {
	case ip.Is4():
		r := (*syscall.RawSockaddrInet4)(unsafe.Pointer(&a.raw))
		*r = syscall.RawSockaddrInet4{Family: syscall.AF_INET, Port: bigEndian(ap.Port()), Addr: ip.As4()}
		a.len = syscall.SizeofSockaddrInet4
	case ip.Is6():
		zone, err := zoneID(ip.Zone())
		if err != nil {
			return err
		}
		r := (*syscall.RawSockaddrInet6)(unsafe.Pointer(&a.raw))
		*r = syscall.RawSockaddrInet6{Family: syscall.AF_INET6, Port: bigEndian(ap.Port()), Addr: ip.As16(), Scope_id: zone}
		a.len = syscall.SizeofSockaddrInet6
	default:
		return fmt.Errorf("address %q: not an IP address and port", ap)
	}
	return nil
}

// setUnix takes a path, or "@name" for an abstract address.
func (a *sockaddr) setUnix(path string) error {
	r := (*syscall.RawSockaddrUnix)(unsafe.Pointer(&a.raw))
	*r = syscall.RawSockaddrUnix{Family: syscall.AF_UNIX}
	// A path needs its closing zero byte; an abstract name has none, and its
	// length counts.
	if n := len(path); n == 0 || n >= len(r.Path) {
		return fmt.Errorf("unix socket path %q: length %d, must be 1 to %d", path, n, len(r.Path)-1)
	}
	for i := range len(path) {
		r.Path[i] = int8(path[i])
	}
	a.len = uint32(unsafe.Offsetof(r.Path)) + uint32(len(path))
	if path[0] == '@' {
		r.Path[0] = 0
	} else {
		a.len++
	}
	return nil
}

// addrPort gives an IP address and port; it is invalid for unix sockets.
// IPv4-mapped addresses come out as IPv4.
func (a *sockaddr) addrPort() netip.AddrPort {
	switch a.family() {
	case syscall.AF_INET:
		r := (*syscall.RawSockaddrInet4)(unsafe.Pointer(&a.raw))
		return netip.AddrPortFrom(netip.AddrFrom4(r.Addr), bigEndian(r.Port))
	case syscall.AF_INET6:
		r := (*syscall.RawSockaddrInet6)(unsafe.Pointer(&a.raw))
		ip := netip.AddrFrom16(r.Addr).Unmap()
		if r.Scope_id != 0 && ip.Is6() {
			ip = ip.WithZone(strconv.Itoa(int(r.Scope_id)))
		}
		return netip.AddrPortFrom(ip, bigEndian(r.Port))
	}
	return netip.AddrPort{}
}

// bigEndian turns a port between the host's and the network's byte order.
func bigEndian(p uint16) uint16 {
	var b [2]byte
	binary.NativeEndian.PutUint16(b[:], p)
	return binary.BigEndian.Uint16(b[:])
}

func zoneID(zone string) (uint32, error) {
	if zone == "" {
		return 0, nil
	}
	if n, err := strconv.ParseUint(zone, 10, 32); err == nil {
		return uint32(n), nil
	}
	nic, err := net.InterfaceByName(zone)
	if err != nil {
		return 0, fmt.Errorf("zone %q: %w", zone, err)
	}
	return uint32(nic.Index), nil
}
