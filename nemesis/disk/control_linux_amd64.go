package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lockcheck/lockcheck/internal/execstop"
)

// The system calls that are intercepted, by number.
var (
	syncCalls  = []uint32{unix.SYS_FSYNC, unix.SYS_FDATASYNC, unix.SYS_SYNC_FILE_RANGE, unix.SYS_SYNCFS, unix.SYS_MSYNC}
	writeCalls = []uint32{unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_WRITEV, unix.SYS_PWRITEV, unix.SYS_PWRITEV2, unix.SYS_FALLOCATE}
)

// New makes a control of a healthy disk. The caller closes it.
func New(o Options) (*Control, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("make a socket for a disk: %w", err)
	}
	return &Control{
		options: o,
		changed: make(chan struct{}),
		held:    new(sync.WaitGroup),
		ours:    os.NewFile(uintptr(pair[0]), "disk control"),
		theirs:  os.NewFile(uintptr(pair[1]), "disk control"),
	}, nil
}

// Available returns nil if the system calls of processes can be intercepted
// here, else what is missing. It tries.
func Available() error {
	if err := execstop.Available(); err != nil {
		return err
	}
	c, err := New(Options{})
	if err != nil {
		return err
	}
	exe, err := os.Executable()
	if err != nil {
		return errors.Join(fmt.Errorf("find this program, to try seccomp on it: %w", err), c.Close())
	}
	// The child is killed at its exec stop: not an instruction of it runs.
	err = execstop.Start(exec.Command(exe), execstop.Options{}, c, trial{})
	if !errors.Is(err, errTrial) {
		return errors.Join(fmt.Errorf("seccomp user notification does not work here (it needs Linux 5.5, and may be forbidden in a container): %w", err), c.Close())
	}
	return c.Close()
}

// trial is a patch that fails after those before it have succeeded.
type trial struct{}

var errTrial = errors.New("the trial ends here")

func (trial) Files() []*os.File                   { return nil }
func (trial) Apply(*execstop.Tracee, []int) error { return errTrial }

// Files and Apply make a Control a patch for execstop.Start.
func (c *Control) Files() []*os.File { return []*os.File{c.theirs} }

// Apply has the process install the filter and hand over the descriptor at
// which its calls are answered.
func (c *Control) Apply(t *execstop.Tracee, fds []int) error {
	if err := apply(t, fds, c.options); err != nil {
		return err
	}
	return c.Applied()
}

// Kind and Applied make a Control a patch that another process can apply.
func (c *Control) Kind() (name, option string) {
	if c.options.Writes {
		option = withWrites
	}
	return patchKind, option
}

const (
	patchKind  = "disk"
	withWrites = "writes"
)

func init() {
	execstop.RegisterKind(patchKind, func(files []*os.File, option string) execstop.Patch {
		return given{files, Options{Writes: option == withWrites}}
	})
}

// given is a disk whose control another process has: its end of the socket.
type given struct {
	files   []*os.File
	options Options
}

// Files implements execstop.Patch.
func (g given) Files() []*os.File { return g.files }

// Apply implements execstop.Patch. The other process receives the descriptor.
func (g given) Apply(t *execstop.Tracee, fds []int) error { return apply(t, fds, g.options) }

func apply(t *execstop.Tracee, fds []int, o Options) error {
	if err := install(t, uintptr(fds[0]), o); err != nil {
		return fmt.Errorf("intercept system calls of process %d: %w", t.PID(), err)
	}
	return nil
}

func install(t *execstop.Tracee, socket uintptr, o Options) error {
	program := filter(o)
	code, err := t.Push(memory(program))
	if err != nil {
		return err
	}
	// struct sock_fprog: length, then at offset 8 the address.
	header := binary.NativeEndian.AppendUint64(nil, uint64(len(program)))
	prog, err := t.Push(binary.NativeEndian.AppendUint64(header, uint64(code)))
	if err != nil {
		return err
	}
	// Without this, filters are for CAP_SYS_ADMIN only.
	if _, err := t.Syscall(unix.SYS_PRCTL, unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	// Once we have received a call, only a deadly signal may interrupt it:
	// else it would be restarted, and its delay with it.
	flags := uintptr(unix.SECCOMP_FILTER_FLAG_NEW_LISTENER | unix.SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV)
	listener, err := t.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, prog)
	if errors.Is(err, unix.EINVAL) { // before Linux 5.19
		flags = unix.SECCOMP_FILTER_FLAG_NEW_LISTENER
		listener, err = t.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, prog)
	}
	if err != nil {
		return err
	}
	if err := send(t, socket, listener); err != nil {
		return err
	}
	for _, fd := range []uintptr{listener, socket} {
		if _, err := t.Syscall(unix.SYS_CLOSE, fd); err != nil {
			return err
		}
	}
	return nil
}

// memory returns the bytes of a filter as they are in memory.
func memory(program []unix.SockFilter) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(&program[0])), len(program)*int(unsafe.Sizeof(program[0])))
}

// send has the process send one of its descriptors over a socket of it.
func send(t *execstop.Tracee, socket, fd uintptr) error {
	rights := unix.UnixRights(int(fd))
	control, err := t.Push(rights)
	if err != nil {
		return err
	}
	// What is sent besides: a byte.
	vec := binary.NativeEndian.AppendUint64(nil, uint64(control))
	iov, err := t.Push(binary.NativeEndian.AppendUint64(vec, 1))
	if err != nil {
		return err
	}
	// struct msghdr: name, its length, iovecs, their number, control, its
	// length, flags.
	var msg []byte
	for _, word := range []uint64{0, 0, uint64(iov), 1, uint64(control), uint64(len(rights)), 0} {
		msg = binary.NativeEndian.AppendUint64(msg, word)
	}
	addr, err := t.Push(msg)
	if err != nil {
		return err
	}
	_, err = t.Syscall(unix.SYS_SENDMSG, socket, addr, 0)
	return err
}

// Applied takes a descriptor that a process has sent, and serves it. As all starts
// share one socket it may be that of another, which is as good.
func (c *Control) Applied() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return os.ErrClosed
	}
	space := make([]byte, unix.CmsgSpace(4))
	_, n, _, _, err := unix.Recvmsg(int(c.ours.Fd()), make([]byte, 1), space, unix.MSG_CMSG_CLOEXEC|unix.MSG_DONTWAIT)
	if err != nil {
		return fmt.Errorf("receive the descriptor: %w", err)
	}
	messages, err := unix.ParseSocketControlMessage(space[:n])
	if err != nil || len(messages) != 1 {
		return fmt.Errorf("receive the descriptor: %d messages: %w", len(messages), err)
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) != 1 {
		return fmt.Errorf("receive the descriptor: %d of them: %w", len(fds), err)
	}
	// Non-blocking, so that Go's poller waits and Close ends the wait.
	if err := unix.SetNonblock(fds[0], true); err != nil {
		return errors.Join(err, unix.Close(fds[0]))
	}
	f := os.NewFile(uintptr(fds[0]), "seccomp listener")
	c.listeners = append(c.listeners, f)
	c.serving.Go(func() { c.serve(f) })
	return nil
}

// filter is the BPF program: it passes the calls in question to us, and allows
// all else.
func filter(o Options) []unix.SockFilter {
	// Offsets in struct seccomp_data; the low half of the first argument.
	const nr, arch, arg0 = 0, 4, 16
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	ret := func(what uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: what} }
	unlessEqual := func(k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: k, Jf: skip}
	}
	p := []unix.SockFilter{
		load(arch),
		unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.AUDIT_ARCH_X86_64, Jt: 1},
		ret(unix.SECCOMP_RET_ALLOW),
		load(nr),
	}
	for _, n := range syncCalls {
		p = append(p, unlessEqual(n, 1), ret(unix.SECCOMP_RET_USER_NOTIF))
	}
	if o.Writes {
		for _, n := range writeCalls {
			p = append(p,
				unlessEqual(n, 4),
				load(arg0),
				unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: 2, Jf: 1},
				ret(unix.SECCOMP_RET_USER_NOTIF),
				ret(unix.SECCOMP_RET_ALLOW),
			)
		}
	}
	return append(p, ret(unix.SECCOMP_RET_ALLOW))
}

// notification is struct seccomp_notif.
type notification struct {
	id   uint64
	pid  uint32 // of the thread
	_    uint32 // flags
	nr   uint32
	_    uint32 // architecture
	_    uint64 // instruction pointer
	args [6]uint64
}

// response is struct seccomp_notif_resp.
type response struct {
	id    uint64
	_     int64 // value
	error int32
	flags uint32
}

func ioctl[T any](fd uintptr, request uintptr, arg *T) error {
	if _, _, e := unix.Syscall(unix.SYS_IOCTL, fd, request, uintptr(unsafe.Pointer(arg))); e != 0 {
		return e
	}
	return nil
}

// serve answers the calls of one process and its descendants until all of them
// have ended or the control is closed.
func (c *Control) serve(f *os.File) {
	defer f.Close()
	conn, err := f.SyscallConn()
	if err != nil {
		return // closed
	}
	for ended := false; !ended; {
		var n notification
		var got bool
		err := conn.Read(func(fd uintptr) bool {
			var events int16
			events, got, ended = next(fd, &n)
			return events != 0
		})
		if err != nil {
			return // closed
		}
		if got {
			c.handle(f, n)
		}
	}
}

// next receives a notification if there is one. It does not wait. Without
// events there is nothing to be had now.
func next(fd uintptr, n *notification) (events int16, got, ended bool) {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	if _, err := unix.Poll(p, 0); err != nil {
		return unix.POLLIN, false, false // EINTR: look again
	}
	if p[0].Revents&unix.POLLIN != 0 {
		// It fails if the process has ended since.
		return p[0].Revents, ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_RECV, n) == nil, false
	}
	return p[0].Revents, false, p[0].Revents != 0
}

// handle decides on a call.
func (c *Control) handle(f *os.File, n notification) {
	c.mu.Lock()
	b, changed, held := c.behaviour, c.changed, c.held
	isSync := slices.Contains(syncCalls, n.nr)
	if isSync && b.Delay > 0 {
		held.Add(1) // before a Set can wait for it
	}
	c.mu.Unlock()

	if !isSync {
		c.writes.Add(1)
		if b.Full && toRegularFile(n) {
			c.refused.Add(1)
			answer(f, n.id, unix.ENOSPC)
			return
		}
		answer(f, n.id, 0)
		return
	}
	c.syncs.Add(1)
	if b.Delay == 0 {
		c.finish(f, n.id, b)
		return
	}
	c.delayed.Add(1)
	go func() {
		defer held.Done()
		timer := time.NewTimer(b.Delay)
		defer timer.Stop()
		select {
		case <-timer.C:
			c.finish(f, n.id, b)
		case <-changed: // healed: it goes on as if nothing had been
			answer(f, n.id, 0)
		}
	}()
}

func (c *Control) finish(f *os.File, id uint64, b Behaviour) {
	if b.Fail != 0 {
		c.failed.Add(1)
	}
	answer(f, id, unix.Errno(b.Fail))
}

// answer lets the call go on, or fail if e is not 0. That the process is gone
// meanwhile is no error.
func answer(f *os.File, id uint64, e unix.Errno) {
	r := response{id: id, error: -int32(e)}
	if e == 0 {
		r.flags = unix.SECCOMP_USER_NOTIF_FLAG_CONTINUE
	}
	conn, err := f.SyscallConn()
	if err != nil {
		return // closed
	}
	_ = conn.Control(func(fd uintptr) { _ = ioctl(fd, unix.SECCOMP_IOCTL_NOTIF_SEND, &r) })
}

// toRegularFile says if the first argument of the call is a regular file.
func toRegularFile(n notification) bool {
	fi, err := os.Stat(fmt.Sprintf("/proc/%d/fd/%d", n.pid, int32(n.args[0])))
	return err == nil && fi.Mode().IsRegular()
}

// memoryFile makes a file that is on no disk.
func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("lockcheck-probe", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), "probe"), nil
}

// intercepted says if system calls of a running process pass a filter of ours. A
// container has filters for all its processes, which it began with: one more than
// those of the first process there is ours.
func intercepted(pid int) (bool, error) {
	s, err := statusOf(pid)
	if err != nil {
		return false, err
	}
	first := s
	for !first.first && first.parent > 0 {
		if first, err = statusOf(first.parent); err != nil {
			return false, fmt.Errorf("find the first process where process %d runs: %w", pid, err)
		}
	}
	return s.filters > first.filters, nil
}

// status is what the kernel says of a process.
type status struct {
	parent  int
	first   bool // of its process namespace
	filters int  // of system calls
}

func statusOf(pid int) (status, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return status{}, err
	}
	return parseStatus(string(text))
}

func parseStatus(text string) (status, error) {
	s := status{filters: -1}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		// As it is numbered in its own namespace.
		last := fields[len(fields)-1]
		var err error
		switch name {
		case "PPid":
			s.parent, err = strconv.Atoi(last)
		case "NSpid":
			s.first = last == "1"
		case "Seccomp_filters":
			s.filters, err = strconv.Atoi(last)
		}
		if err != nil {
			return s, fmt.Errorf("parse the status of a process: %w", err)
		}
	}
	if s.filters < 0 {
		return s, errors.New("this kernel does not say how many seccomp filters a process has (Linux 5.9 does)")
	}
	return s, nil
}
