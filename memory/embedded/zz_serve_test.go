package embedded
import ("testing";"context";"os/exec";"fmt";"net")
func TestServe(t *testing.T){
 s:=open(t,Options{Dir:t.TempDir(),Listen:"127.0.0.1:0"}); c:=insider(t,s); c.Set(context.Background(),"a","b",0)
 port:=s.Addr().(*net.TCPAddr).Port
 out,err:=exec.Command("bash","-c",fmt.Sprintf(`(sleep 1; printf 'GET a\nHELP GET\nDEL a\nEVAL "return 1" 0\nINFO\nquit\n'; sleep 1) | script -qec "redis-cli -p %d" /dev/null`,port)).CombinedOutput()
 t.Log(string(out),err)
}
