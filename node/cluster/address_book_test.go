package cluster

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
	if err := b.remember([]Peer{{ID: "1", Name: "a", Cluster: "h:1", Gossip: "h:2"}, {ID: "2", Cluster: "no port"}}); err != nil {
		t.Fatal(err)
	}
	again, err := openAddressBook(dir)
	if err != nil {
		t.Fatal(err)
	}
	if all := again.all(); len(all) != 1 || all[0].Cluster != "h:1" || all[0].Gossip != "h:2" {
		t.Fatalf("got %+v", all)
	}
	info, err := os.Stat(filepath.Join(dir, peersFile))
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Fatalf("%v %v", info, err)
	}
	if !again.addAnnounced(Peer{ID: "1", Cluster: "h:7"}, "i") || again.addAnnounced(Peer{ID: "1", Cluster: "h:7"}, "i") {
		t.Fatal("news are what differs from the last announcement")
	}
	if !again.announcedByOther("1", "before") || again.announcedByOther("1", "i") || again.announcedByOther("2", "") {
		t.Fatal("a word counts against gossip of another process")
	}
	if all := again.all(); len(all) != 1 || all[0].Cluster != "h:7" {
		t.Fatalf("an announcement comes before what is remembered: %+v", all)
	}
}

func TestPeersAreBounded(t *testing.T) {
	b, err := openAddressBook(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	var many []Peer
	for i := range 2 * maxPeers {
		p := Peer{ID: fmt.Sprint(i), Cluster: "h:1"}
		many = append(many, p)
		b.addAnnounced(p, "")
	}
	if len(b.announced) != maxPeers {
		t.Fatalf("%d announced", len(b.announced))
	}
	if err := b.remember(many); err != nil || len(b.remembered) != maxPeers {
		t.Fatalf("%d remembered: %v", len(b.remembered), err)
	}
}

func TestUnreadablePeersFileGivesAnEmptyBook(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, peersFile), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, err := openAddressBook(dir)
	if err == nil || b == nil || len(b.all()) != 0 {
		t.Fatalf("got %v, %v", b, err)
	}
}
