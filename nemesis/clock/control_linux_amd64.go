package clock

import (
	_ "embed"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/lockcheck/lockcheck/internal/execstop"
)

//go:generate sh -c "as -o clock.o clock_amd64.S && objcopy -O binary -j .text clock.o clock_amd64.bin; rm -f clock.o"

//go:embed clock_amd64.bin
var code []byte

// Where things are in code.
const (
	trueClockGettime = 0
	trueGettimeofday = 8
	clockGettime     = 64
	gettimeofday     = 320
	timeSeconds      = 576

	pageSize = 4096
)

// New makes a control whose clocks are true. The caller closes it.
func New() (*Control, error) {
	// A memfd: there is no file to leave behind, and the processes need no
	// right to open one.
	fd, err := unix.MemfdCreate(memfdName, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, fmt.Errorf("make memory for a clock: memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), memfdName)
	if err := f.Truncate(pageSize); err != nil {
		f.Close()
		return nil, fmt.Errorf("make memory for a clock: %w", err)
	}
	mem, err := unix.Mmap(fd, 0, pageSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("map memory for a clock: %w", err)
	}
	unmap := func() error { return unix.Munmap(mem) }
	// What is not mapped yet can be mapped for reading only: a process can't
	// set its own clock.
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_FUTURE_WRITE | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		_ = unmap()
		f.Close()
		return nil, fmt.Errorf("seal memory for a clock: %w", err)
	}
	return &Control{file: f, page: (*page)(unsafe.Pointer(&mem[0])), unmap: unmap}, nil
}

const memfdName = "lockcheck-clock"

// Available returns nil if processes can be given a clock here, else what is
// missing. It tries.
func Available() error {
	if err := execstop.Available(); err != nil {
		return err
	}
	c, err := New()
	if err != nil {
		return err
	}
	return c.Close()
}

// Files and Apply make a Control a patch for execstop.Start.
func (c *Control) Files() []*os.File { return []*os.File{c.file} }

// Apply gives the process the clock.
func (c *Control) Apply(t *execstop.Tracee, fds []int) error { return apply(t, fds) }

// Kind and Applied make a Control a patch that another process can apply.
func (c *Control) Kind() (name, option string) { return patchKind, "" }

// Applied returns nil: Follows tells.
func (c *Control) Applied() error { return nil }

const patchKind = "clock"

func init() {
	execstop.RegisterKind(patchKind, func(files []*os.File, _ string) execstop.Patch { return given(files) })
}

// given is a clock whose control another process has: its file.
type given []*os.File

// Files implements execstop.Patch.
func (g given) Files() []*os.File { return g }

// Apply implements execstop.Patch.
func (g given) Apply(t *execstop.Tracee, fds []int) error { return apply(t, fds) }

// apply gives a process the clock of the file fds[0].
func apply(t *execstop.Tracee, fds []int) error {
	wrap := func(err error) error { return fmt.Errorf("give process %d a clock: %w", t.PID(), err) }
	image := append([]byte(nil), code...)
	for at, name := range map[int]string{trueClockGettime: "__vdso_clock_gettime", trueGettimeofday: "__vdso_gettimeofday"} {
		fn, ok := t.Function(name)
		if !ok {
			return wrap(fmt.Errorf("this kernel's vDSO has no %s", name))
		}
		binary.NativeEndian.PutUint64(image[at:], uint64(fn))
	}
	const noFD = ^uintptr(0)
	base, err := t.Syscall(unix.SYS_MMAP, 0, 2*pageSize, unix.PROT_READ|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS, noFD, 0)
	if err != nil {
		return wrap(err)
	}
	_, err = t.Syscall(unix.SYS_MMAP, base+pageSize, pageSize, unix.PROT_READ, unix.MAP_SHARED|unix.MAP_FIXED, uintptr(fds[0]), 0)
	if err != nil {
		return wrap(err)
	}
	if _, err := t.Syscall(unix.SYS_CLOSE, uintptr(fds[0])); err != nil {
		return wrap(err)
	}
	if err := t.Write(base, image); err != nil {
		return wrap(err)
	}
	for name, at := range map[string]uintptr{
		"clock_gettime": clockGettime,
		"gettimeofday":  gettimeofday,
		"time":          timeSeconds,
	} {
		// libc uses one name, some runtimes the other.
		for _, name := range []string{name, "__vdso_" + name} {
			if err := t.Redirect(name, base+at); err != nil {
				return wrap(err)
			}
		}
	}
	return nil
}

// Follows returns nil if the running process pid has this clock: its vDSO leads
// to our code, and behind that is this control's page. It takes the right to
// trace the process.
func (c *Control) Follows(pid int) error {
	to, err := execstop.Redirected(pid, "__vdso_clock_gettime")
	if err != nil {
		return err
	}
	fi, err := c.file.Stat()
	if err != nil {
		return err
	}
	var st unix.Stat_t
	if err := unix.Fstat(int(c.file.Fd()), &st); err != nil {
		return fmt.Errorf("stat %s: %w", fi.Name(), err)
	}
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid))
	if err != nil {
		return fmt.Errorf("see what process %d has mapped: %w", pid, err)
	}
	// "7f0000001000-7f0000002000 r--s 00000000 00:01 4242   /memfd:... (deleted)"
	start := fmt.Sprintf("%x-", to-clockGettime+pageSize)
	for line := range strings.Lines(string(maps)) {
		f := strings.Fields(line)
		if strings.HasPrefix(line, start) && len(f) > 5 && f[4] == fmt.Sprint(st.Ino) && f[5] == "/memfd:"+memfdName {
			return nil
		}
	}
	exe, _ := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid)) // only for the message
	return fmt.Errorf("process %d (%s) does not have this clock: it was started without, or by an exec", pid, exe)
}

var clockIDs = [rowCount]int32{
	realtime:  unix.CLOCK_REALTIME,
	tai:       unix.CLOCK_TAI,
	monotonic: unix.CLOCK_MONOTONIC,
	raw:       unix.CLOCK_MONOTONIC_RAW,
	boottime:  unix.CLOCK_BOOTTIME,
}

// now returns the true time of a row's clock: by a system call, which nothing
// here changes.
func now(row int) (int64, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(clockIDs[row], &ts); err != nil {
		return 0, fmt.Errorf("clock_gettime(%d): %w", clockIDs[row], err)
	}
	return ts.Nano(), nil
}

// sleepUntil sleeps until the true monotonic clock shows t.
func sleepUntil(t int64) error {
	ts := unix.NsecToTimespec(t)
	for {
		err := unix.ClockNanosleep(unix.CLOCK_MONOTONIC, unix.TIMER_ABSTIME, &ts, nil)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
