package directory

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

func TestPeersAreRemembered(t *testing.T) {
	dir := t.TempDir()
	b, err := openAddressBook(dir)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Remember([]Peer{{ID: "1", Name: "a", Cluster: "h:1", Gossip: "h:2"}, {ID: "2", Cluster: "no port"}}); err != nil {
		t.Fatal(err)
	}
	again, err := openAddressBook(dir)
	if err != nil {
		t.Fatal(err)
	}
	if all := again.All(); len(all) != 1 || all[0].Cluster != "h:1" || all[0].Gossip != "h:2" {
		t.Fatalf("got %+v", all)
	}
	info, err := os.Stat(filepath.Join(dir, PeersFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	if !again.AddAnnounced(Peer{ID: "1", Cluster: "h:7"}, "i") || again.AddAnnounced(Peer{ID: "1", Cluster: "h:7"}, "i") {
		t.Fatal("news are what differs from the last announcement")
	}
	if !again.announcedByOther("1", "before") || again.announcedByOther("1", "i") || again.announcedByOther("2", "") {
		t.Fatal("a word counts against gossip of another process")
	}
	if all := again.All(); len(all) != 1 || all[0].Cluster != "h:7" {
		t.Fatalf("an announcement comes before what is remembered: %+v", all)
	}
}

func TestPeersAreBounded(t *testing.T) {
	b, err := openAddressBook(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var many []Peer
	for i := range 2 * MaxPeers {
		p := Peer{ID: fmt.Sprint(i), Cluster: "h:1"}
		many = append(many, p)
		b.AddAnnounced(p, "")
	}
	if len(b.announced) != MaxPeers {
		t.Fatalf("%d announced", len(b.announced))
	}
	if err := b.Remember(many); err != nil || len(b.remembered) != MaxPeers {
		t.Fatalf("%d remembered: %v", len(b.remembered), err)
	}
}

func TestUnreadablePeersFileGivesAnEmptyBook(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, PeersFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := openAddressBook(dir)
	if err == nil || b == nil || len(b.All()) != 0 {
		t.Fatalf("got %v, %v", b, err)
	}
}
