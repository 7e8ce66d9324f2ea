// A client of the file server that is not of our making: 9fans.net/go's plan9/client.
//
// An ADDRESS with "tls:" before it is dialled by TLS, with the keys in the folder that the
// environment's KEYS names.
//
//	plan9 work  ADDRESS FLAVOUR USER OTHER   everything below /lib/FLAVOUR, which USER may write
//	plan9 check ADDRESS FLAVOUR USER PATH    what `work` left, as it stands in PATH of a dump
//	plan9 bulk  ADDRESS FLAVOUR USER MIB     a file of so many MiB, written and read back
//	plan9 reread ADDRESS FLAVOUR USER MIB    what `bulk` left
//	plan9 hide  ADDRESS FLAVOUR USER WORD    files, some of them temporary, that say so in WORD
//	plan9 hidden ADDRESS FLAVOUR USER WORD   what `hide` left
//
// It prints a line a scene and ends with 1 at the first that is not as it should be.
package main

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"io/ioutil"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"

	"9fans.net/go/plan9"
	"9fans.net/go/plan9/client"
)

var (
	top     string
	fs      *client.Fsys
	lenient bool
	scene   string
)

func fail(what ...interface{}) {
	fmt.Println("FAILED", scene+":", fmt.Sprint(what...))
	os.Exit(1)
}

func must(err error) {
	if err != nil {
		fail(err)
	}
}

func is(truth bool, what ...interface{}) {
	if !truth {
		fail(what...)
	}
}

// refused: it must fail, and the text must have one of these words.
func refused(err error, words ...string) {
	if err == nil {
		fail("not refused: ", words)
	}
	for _, word := range words {
		if strings.Contains(err.Error(), word) {
			return
		}
	}
	fail(err, " has none of ", words)
}

func dial(address string) *client.Conn {
	bare := strings.TrimPrefix(address, "tls:")
	if bare == address {
		conn, err := client.Dial("tcp", address)
		must(err)
		return conn
	}
	keys := os.Getenv("KEYS")
	own, err := tls.LoadX509KeyPair(keys+"/client-cert.pem", keys+"/client-key.pem")
	must(err)
	pem, err := ioutil.ReadFile(keys + "/ca-cert.pem")
	must(err)
	roots := x509.NewCertPool()
	is(roots.AppendCertsFromPEM(pem), "no certificate in ca-cert.pem")
	// Shown whoever the server says may vouch for it.
	show := func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &own, nil }
	config := &tls.Config{GetClientCertificate: show, RootCAs: roots}
	line, err := tls.Dial("tcp", bare, config)
	must(err)
	conn, err := client.NewConn(line)
	must(err)
	return conn
}

func at(name string) string { return top + "/" + name }

// noise: bytes that differ from file to file.
func noise(seed int64, n int) []byte {
	b := make([]byte, n)
	rand.New(rand.NewSource(seed)).Read(b)
	return b
}

func create(name string, mode uint8, perm plan9.Perm) *client.Fid {
	fid, err := fs.Create(at(name), mode, perm)
	must(err)
	return fid
}

func put(name string, data []byte) {
	fid := create(name, plan9.OWRITE, 0664)
	_, err := fid.Write(data)
	must(err)
	must(fid.Close())
}

func get(path string) []byte {
	fid, err := fs.Open(path, plan9.OREAD)
	must(err)
	defer fid.Close()
	var out bytes.Buffer
	buf := make([]byte, 5000)
	for {
		n, err := fid.Read(buf)
		out.Write(buf[:n])
		if err == io.EOF || (n == 0 && err == nil) {
			return out.Bytes()
		}
		must(err)
	}
}

func stat(name string) *plan9.Dir {
	dir, err := fs.Stat(at(name))
	must(err)
	return dir
}

func gone(name string) {
	_, err := fs.Stat(at(name))
	refused(err, "not exist", "not found")
}

func wstat(name string, change func(*plan9.Dir)) error {
	var dir plan9.Dir
	dir.Null()
	change(&dir)
	return fs.Wstat(at(name), &dir)
}

func names(path string) map[string]int {
	fid, err := fs.Open(path, plan9.OREAD)
	must(err)
	defer fid.Close()
	dirs, err := fid.Dirreadall()
	must(err)
	seen := map[string]int{}
	for _, dir := range dirs {
		seen[dir.Name]++
	}
	return seen
}

func bytesComeBack() {
	data := noise(1, 1<<20+13)
	fid := create("big", plan9.ORDWR, 0664)
	// From the back, in pieces that fit no block.
	for end := len(data); end > 0; end -= 50021 {
		from := end - 50021
		if from < 0 {
			from = 0
		}
		n, err := fid.WriteAt(data[from:end], int64(from))
		must(err)
		is(n == end-from, "short write ", n)
	}
	back := make([]byte, len(data))
	n, err := fid.ReadAt(back, 0)
	must(err)
	is(n == len(data) && bytes.Equal(back, data), "other bytes")
	before := stat("big")
	is(before.Length == uint64(len(data)), "length ", before.Length)
	data[7] ^= 1
	_, err = fid.WriteAt(data[7:8], 7)
	must(err)
	after := stat("big")
	is(after.Qid.Path == before.Qid.Path && after.Qid.Vers > before.Qid.Vers, "version ", after.Qid)
	must(fid.Close())
	is(bytes.Equal(get(at("big")), data), "other bytes through another fid")
}

func directories() {
	must(create("many", plan9.OREAD, plan9.DMDIR|0775).Close())
	for n := 0; n < 300; n++ {
		put(fmt.Sprintf("many/a file of some length %03d", n), []byte{byte(n)})
	}
	seen := names(at("many"))
	is(len(seen) == 300, len(seen), " names")
	for name, times := range seen {
		is(times == 1, name, " stands ", times, " times")
	}
	dir := stat("many")
	is(dir.Mode&plan9.DMDIR != 0 && dir.Qid.Type&plan9.QTDIR != 0 && dir.Length == 0, dir)
	refused(fs.Remove(at("many")), "not empty")
	for name := range seen {
		must(fs.Remove(at("many/" + name)))
	}
	must(fs.Remove(at("many")))
	gone("many")
}

func deepPaths() {
	path := "deep"
	for n := 0; n < 40; n++ {
		must(create(path, plan9.OREAD, plan9.DMDIR|0775).Close())
		path += fmt.Sprintf("/d%d", n)
	}
	put(path, []byte("bottom"))
	is(string(get(at(path))) == "bottom", "more than one walk")
}

func renames() {
	put("old", []byte("old"))
	put("there", []byte("there"))
	must(wstat("old", func(d *plan9.Dir) { d.Name = "new" }))
	gone("old")
	err := wstat("new", func(d *plan9.Dir) { d.Name = "there" })
	if lenient {
		must(err)
		gone("new")
		is(string(get(at("there"))) == "old", "it was not replaced")
	} else {
		refused(err, "exist")
		is(string(get(at("there"))) == "there", "it was replaced")
		must(fs.Remove(at("new")))
	}
	must(fs.Remove(at("there")))
}

func lengthsAndTimes() {
	put("cut", noise(2, 20000))
	must(wstat("cut", func(d *plan9.Dir) { d.Length = 9001 }))
	is(bytes.Equal(get(at("cut")), noise(2, 20000)[:9001]), "cut elsewhere")
	must(wstat("cut", func(d *plan9.Dir) { d.Length = 20000 }))
	is(bytes.Equal(get(at("cut"))[9001:], make([]byte, 10999)), "what was cut came back")
	must(wstat("cut", func(d *plan9.Dir) { d.Mtime = 1000000000; d.Mode = 0600 }))
	dir := stat("cut")
	is(dir.Mtime == 1000000000 && dir.Mode == 0600, dir)
	fid, err := fs.Open(at("cut"), plan9.OWRITE|plan9.OTRUNC)
	must(err)
	must(fid.Close())
	is(stat("cut").Length == 0, "OTRUNC")
	must(fs.Remove(at("cut")))
}

func modesOfFiles() {
	fid := create("log", plan9.OWRITE, plan9.DMAPPEND|0664)
	for _, word := range []string{"one ", "two ", "three"} {
		_, err := fid.WriteAt([]byte(word), 0)
		must(err)
	}
	must(fid.Close())
	is(string(get(at("log"))) == "one two three", "an append-only file")
	is(stat("log").Qid.Type&plan9.QTAPPEND != 0, "its qid")

	first := create("lock", plan9.OWRITE, plan9.DMEXCL|0664)
	_, err := fs.Open(at("lock"), plan9.OREAD)
	refused(err, "exclusive", "locked")
	must(first.Close())
	again, err := fs.Open(at("lock"), plan9.OREAD)
	must(err)
	must(again.Close())

	short := create("short", plan9.ORDWR|plan9.ORCLOSE, 0664)
	must(short.Close())
	gone("short")
	must(fs.Remove(at("log")))
	must(fs.Remove(at("lock")))
}

func permissions(address, other string) {
	fid := create("mine", plan9.OWRITE, 0640)
	must(fid.Close())
	_, err := fs.Open(at("nowhere"), plan9.OREAD)
	refused(err, "not exist", "not found")
	if lenient {
		// There everybody is one user.
		return
	}
	conn := dial(address)
	defer conn.Close()
	theirs, err := conn.Attach(nil, other, "")
	if strings.HasPrefix(address, "tls:") {
		refused(err, "failed authentication")
		return
	}
	must(err)
	for _, mode := range []uint8{plan9.OREAD, plan9.OWRITE, plan9.ORDWR} {
		_, err = theirs.Open(at("mine"), mode)
		refused(err, "permission")
	}
	refused(theirs.Remove(at("mine")), "permission")
	_, err = theirs.Create(at("theirs"), plan9.OWRITE, 0664)
	refused(err, "permission")
	var dir plan9.Dir
	dir.Null()
	dir.Mode = 0666
	refused(theirs.Wstat(at("mine"), &dir), "not owner", "permission")
}

func manyAtATime() {
	var all sync.WaitGroup
	for who := 0; who < 16; who++ {
		all.Add(1)
		go func(who int) {
			defer all.Done()
			for n := 0; n < 25; n++ {
				name := fmt.Sprintf("at-a-time-%d-%d", who, n)
				data := noise(int64(who*100+n), 3000+who*700+n)
				put(name, data)
				is(bytes.Equal(get(at(name)), data), name)
				if n%2 == 0 {
					must(fs.Remove(at(name)))
				}
			}
		}(who)
	}
	all.Wait()
	left := 0
	for name := range names(top) {
		if strings.HasPrefix(name, "at-a-time-") {
			left++
		}
	}
	is(left == 16*12, left, " files are left")
}

func work(address, other string) {
	run("bytes come back", bytesComeBack)
	run("directories", directories)
	run("deep paths", deepPaths)
	run("renames", renames)
	run("lengths and times", lengthsAndTimes)
	run("modes of files", modesOfFiles)
	run("permissions", func() { permissions(address, other) })
	run("many at a time", manyAtATime)
}

// check: the dump has it, and is kept.
func check(path string) {
	scene = "a dump"
	data := noise(1, 1<<20+13)
	data[7] ^= 1
	is(bytes.Equal(get(path+"/big"), data), "other bytes")
	_, err := fs.Open(path+"/big", plan9.OWRITE)
	refused(err, "read", "permission")
	_, err = fs.Create(path+"/new", plan9.OWRITE, 0664)
	refused(err, "read", "permission")
	refused(fs.Remove(path+"/big"), "read", "permission")
	is(len(names(path)) > 100, "the directory")
	fmt.Println("ok a dump")
}

// pieces: so many MiB, a piece each. A piece differs from its neighbours.
func pieces(mib string, what func(offset int64, piece []byte)) {
	n, err := strconv.Atoi(mib)
	must(err)
	one := noise(3, 1<<20)
	for i := 0; i < n; i++ {
		copy(one, strconv.Itoa(i)+".....")
		what(int64(i)<<20, one)
	}
}

func bulk(mib string) {
	fid := create("bulk", plan9.ORDWR, 0664)
	pieces(mib, func(offset int64, piece []byte) {
		n, err := fid.WriteAt(piece, offset)
		must(err)
		is(n == len(piece), "short write ", n)
	})
	must(fid.Close())
}

func reread(mib string) {
	fid, err := fs.Open(at("bulk"), plan9.OREAD)
	must(err)
	back := make([]byte, 1<<20)
	pieces(mib, func(offset int64, piece []byte) {
		n, err := fid.ReadAt(back, offset)
		must(err)
		is(n == len(piece) && bytes.Equal(back, piece), "other bytes at ", offset)
	})
	must(fid.Close())
}

// said: much of a word and the name of a file.
func said(word, name string) []byte {
	return bytes.Repeat([]byte(word+" "+name+"\n"), 20000)
}

func isTemporary(name string) bool {
	dir := stat(name)
	bit := dir.Mode&plan9.DMTMP != 0
	is(bit == (dir.Qid.Type&plan9.QTTMP != 0), name, ": mode and qid differ: ", dir)
	return bit
}

// hide: one that is temporary from the beginning, one that becomes so, one that ceases to be.
func hide(word string) {
	for name, perm := range map[string]plan9.Perm{
		"plain": 0664, "temporary": plan9.DMTMP | 0664, "hidden": 0664, "shown": plan9.DMTMP | 0664,
	} {
		fid := create(name, plan9.OWRITE, perm)
		_, err := fid.WriteAt(said(word, name), 0)
		must(err)
		must(fid.Close())
	}
	must(wstat("hidden", func(d *plan9.Dir) { d.Mode = plan9.DMTMP | 0664 }))
	must(wstat("shown", func(d *plan9.Dir) { d.Mode = 0664 }))
	hidden(word)
}

func hidden(word string) {
	for name, bit := range map[string]bool{
		"plain": false, "temporary": true, "hidden": true, "shown": false,
	} {
		is(isTemporary(name) == bit, name, " is temporary: ", !bit)
		is(bytes.Equal(get(at(name)), said(word, name)), name, " has other bytes")
	}
}

func run(name string, f func()) {
	scene = name
	f()
	fmt.Println("ok", name)
}

func main() {
	scene = "attach"
	is(len(os.Args) == 6, "usage: see the head of main.go")
	what, address, user := os.Args[1], os.Args[2], os.Args[4]
	lenient, top = os.Args[3] == "linux", "lib/"+os.Args[3]
	conn := dial(address)
	var err error
	aname := ""
	if what == "check" {
		aname = "dump"
	}
	fs, err = conn.Attach(nil, user, aname)
	must(err)
	last := os.Args[5]
	switch what {
	case "check":
		check(last)
	case "bulk":
		run("written in bulk", func() { bulk(last) })
		run("read in bulk", func() { reread(last) })
	case "reread":
		run("read in bulk", func() { reread(last) })
	case "hide":
		run("temporary files", func() { hide(last) })
	case "hidden":
		run("temporary files stay", func() { hidden(last) })
	default:
		work(address, last)
	}
	fmt.Println("all")
}
