// Package keeper is the first process of a server's container: this program, which
// starts the server as its child whenever the harness says so. So the server can be
// given a clock and a disk of its own as it starts, as a local process is, in any
// image; and a server that is killed leaves its container, with its addresses, as it
// leaves its machine.
//
// The two speak over a Unix socket, a message a packet. When the harness is gone, the
// keeper ends the server and itself, and with it the container.
package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/lockcheck/lockcheck/internal/execstop"
	"github.com/lockcheck/lockcheck/internal/selfexec"
)

// Role is the keeper's name among the program's roles. Its arguments are the path of
// the socket and the server's command line.
const Role = "keeper"

func init() { selfexec.Register(Role, serve) }

// order is a message to the keeper.
type order struct {
	// Start starts the server. The files that come with the message are its log, and
	// those of the patches in their order.
	Start *start `json:"start,omitempty"`
	// Kill ends all processes of the container but the keeper.
	Kill bool `json:"kill,omitempty"`
}

type start struct {
	Patches []patch `json:"patches"`
}

// patch is an execstop.Portable.
type patch struct {
	Kind   string `json:"kind"`
	Option string `json:"option"`
	Files  int    `json:"files"` // how many it has
}

// report is a message to the harness.
type report struct {
	Started bool   `json:"started,omitempty"`
	Failed  string `json:"failed,omitempty"` // why it was not started
	// Ended says how the server has ended, of which nothing is left then.
	Ended string `json:"ended,omitempty"`
}

const (
	maxMessage = 64 << 10
	maxFiles   = 16
)

// network keeps the bounds of messages.
const network = "unixpacket"

func send(conn *net.UnixConn, message any, files ...*os.File) error {
	body, err := json.Marshal(message)
	if err != nil {
		return err
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			fds[i] = int(f.Fd())
		}
		rights = unix.UnixRights(fds...)
	}
	_, _, err = conn.WriteMsgUnix(body, rights, nil)
	return err
}

// receive returns the files that come with a message. The caller closes them.
func receive(conn *net.UnixConn, message any) ([]*os.File, error) {
	body, rights := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxFiles))
	n, m, _, _, err := conn.ReadMsgUnix(body, rights)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, errEnd
	}
	messages, err := unix.ParseSocketControlMessage(rights[:m])
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range messages {
		fds, err := unix.ParseUnixRights(&messages[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), "received"))
		}
	}
	return files, json.Unmarshal(body[:n], message)
}

// errEnd says that the other side is gone.
var errEnd = errors.New("the connection has ended")

// serve is the keeper.
func serve(args []string) int {
	if len(args) < 2 {
		fmt.Fprintln(os.Stderr, Role+": want the path of a socket and a command")
		return 2
	}
	conn, err := net.DialUnix(network, nil, &net.UnixAddr{Name: args[0], Net: network})
	if err != nil {
		fmt.Fprintln(os.Stderr, Role+":", err)
		return 1
	}
	for {
		var o order
		files, err := receive(conn, &o)
		if err != nil {
			killAll()
			return 0
		}
		switch {
		case o.Start != nil:
			err = keep(conn, args[1:], o.Start.Patches, files)
		case o.Kill:
			killAll()
		}
		for _, f := range files {
			_ = f.Close() // which were for the server only
		}
		if err != nil {
			killAll()
			return 1
		}
	}
}

// keep starts the server and reports whether it did, and later its end. The error is of
// the connection.
func keep(conn *net.UnixConn, command []string, patches []patch, files []*os.File) error {
	cmd := exec.Command(command[0], command[1:]...)
	if err := launch(cmd, patches, files); err != nil {
		return send(conn, report{Failed: err.Error()})
	}
	err := send(conn, report{Started: true}) // before it can have ended
	go func() {
		end := "exit status 0"
		if err := cmd.Wait(); err != nil {
			end = err.Error()
		}
		killAll()
		reap()
		_ = send(conn, report{Ended: end}) // the harness may be gone
	}()
	return err
}

func launch(cmd *exec.Cmd, patches []patch, files []*os.File) error {
	if len(files) == 0 {
		return errors.New("there is no file for its log")
	}
	cmd.Stdout, cmd.Stderr = files[0], files[0]
	files = files[1:]
	var unpacked []execstop.Patch
	for _, p := range patches {
		if p.Files > len(files) {
			return fmt.Errorf("the files of the patch %s are missing", p.Kind)
		}
		u, err := execstop.Unpack(p.Kind, p.Option, files[:p.Files])
		if err != nil {
			return err
		}
		unpacked, files = append(unpacked, u), files[p.Files:]
	}
	return execstop.Start(cmd, execstop.Options{}, unpacked...)
}

// killAll ends all processes of the container but this one: for its first process that
// is what -1 means. Elsewhere it would be half of the machine.
func killAll() {
	if os.Getpid() == 1 {
		_ = syscall.Kill(-1, syscall.SIGKILL) // there may be none
	}
}

// reap waits until all children are gone: those of a server that died are the first
// process's. They have been killed.
func reap() {
	for {
		_, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && !errors.Is(err, unix.EINTR) {
			return // ECHILD
		}
	}
}
